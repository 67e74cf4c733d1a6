"""Draws rooms and the edges between them as an SVG picture; `tools/check_layers --svg` calls it.

The rooms stand on rows, the lowest layer at the bottom, and every edge points to the room that is used. The picture
shows structure only, no counts. Equal rooms and edges give an equal text.
"""
from xml.sax.saxutils import escape

WIDTH = 1000
LEFT = 120  # the rows begin right of their labels
ROW = 76  # from one row to the next
BOX = 42
TOP = 20
GAP = 14
CHARACTER = 7.6  # width of a character of a room's name
SMALL = 5.9  # width of a character of a folder's name

# What the rows of a layer have in common, by the number of the layer.
WORDS = {
    0: "foundations",
    1: "resources",
    2: "mathematics",
    2.1: "loop nests",
    3.0: "interface, models",
    3.1: "shared by engines",
    3.2: "shared by engines",
    3.3: "shared by engines",
    3.4: "shared by engines",
    3.5: "engines",
    3.6: "plan",
    3.7: "streams",
    4.0: "file formats",
    4.1: "shared by nets",
    4.2: "files, data, layers",
    4.3: "nets as values",
    4.4: "nets as graphs",
    4.5: "scores",
    4.6: "inference",
    4.7: "reports",
    4.8: "training",
    5: "users",
}
USERS = 5  # all layers from here on are drawn as one row
FRAMED = {3: ("#fffaf0", "#d8b46a"), 4: ("#fdf3f3", "#d59a9a")}  # layers whose rooms lie in one folder; colours of the frame
COLOURS = {0: "#e8e8ee", 1: "#e3eefc", 2: "#e2f4ea", 3: "#fdf1d8", 4: "#f9e4e4", 5: "#f0f0f0"}


def reduced(edges):
    """The edges without those that a longer path implies. The edges must have no cycle."""
    below = {}
    for user, used in edges:
        below.setdefault(user, set()).add(used)

    def reaches(start, goal, skip):
        return any(used == goal or reaches(used, goal, False)
                   for used in below.get(start, ()) if not (skip and used == goal))

    return sorted((user, used) for user, used in edges if not reaches(user, used, True))


class Node:
    """A room on a row, or the point where a long edge passes a row (then `room` is None)."""

    def __init__(self, row, room, width):
        self.row, self.room, self.width = row, room, width
        self.above, self.below = [], []
        self.x = 0.0


class Picture:
    def __init__(self, rooms, edges):
        self.rooms = rooms  # name -> (folder, layer)
        self.edges = reduced(edges)
        self.layers = sorted({min(layer, USERS) for _, layer in rooms.values()})
        self.rows = [[] for _ in self.layers]  # from the lowest
        self.nodes = {}
        for room in rooms:
            self.nodes[room] = self.add(self.row_of(room), room)
        self.beside = []  # edges between rooms of one row
        self.paths = []  # of all other edges: nodes from the user to what it uses
        for user, used in self.edges:
            self.connect(user, used)
        self.arrange()

    def row_of(self, room):
        return self.layers.index(min(self.rooms[room][1], USERS))

    def title(self, room):
        """The name of a room without that of the folder that it lies in."""
        return room.removeprefix("conv_").removeprefix("nets_").removeprefix("plan_")

    def add(self, row, room):
        width = 10
        if room is not None:
            width = max(76, 20 + CHARACTER * len(self.title(room)), 14 + SMALL * len(self.rooms[room][0] + "/"))
        node = Node(row, room, width)
        self.rows[row].append(node)
        return node

    def connect(self, user, used):
        first, last = self.nodes[user], self.nodes[used]
        if first.row == last.row:
            self.beside.append((first, last))
            return
        path = [first] + [self.add(row, None) for row in range(first.row - 1, last.row, -1)] + [last]
        for upper, lower in zip(path, path[1:]):
            upper.below.append(lower)
            lower.above.append(upper)
        self.paths.append(path)

    def spread(self, row):
        """Moves the nodes of a row apart, in their order, as little as needed, and into the picture."""
        rightwards, leftwards = [], []
        x = LEFT
        for node in row:
            rightwards.append(max(node.x, x + node.width / 2))
            x = rightwards[-1] + node.width / 2 + GAP
        x = WIDTH - GAP
        for node in reversed(row):
            leftwards.append(min(node.x, x - node.width / 2))
            x = leftwards[-1] - node.width / 2 - GAP
        for node, right, left in zip(row, rightwards, reversed(leftwards)):
            node.x = (right + left) / 2
        x = WIDTH - GAP
        for node in reversed(row):
            node.x = min(node.x, x - node.width / 2)
            x = node.x - node.width / 2 - GAP

    def arrange(self):
        """Gives the nodes of each row an order and places: each near the nodes that it is joined to."""
        widest = max(self.rows, key=lambda row: sum(node.room is not None for node in row))
        for row in self.rows:
            for i, node in enumerate(row):
                node.x = LEFT + (WIDTH - LEFT - GAP) * (i + 0.5) / len(row)
        for turn in range(40):
            downwards = turn % 2 == 0
            final = turn >= 20  # the order stays, and the widest row too
            for row in (reversed(self.rows) if downwards else self.rows):
                if final and row is widest:
                    continue
                for node in row:
                    joined = node.above + node.below if final else node.above if downwards else node.below
                    if joined:
                        node.x = sum(n.x for n in joined) / len(joined)
                if not final:
                    row.sort(key=lambda node: node.x)
                self.neighbours(row)
                self.spread(row)

    def neighbours(self, row):
        """Puts rooms that use a room of their own row beside it, half of them on either side."""
        for goal in {used.room: used for _, used in self.beside if used in row}.values():
            users = [user for user, used in self.beside if used is goal]
            rest = [node for node in row if node not in users]
            at = rest.index(goal)
            half = (len(users) + 1) // 2
            for i, user in enumerate(users):
                place = i - half if i < half else i - half + 1
                if not user.above and not user.below:
                    user.x = goal.x + place * (goal.width + 2 * GAP)
            row[:] = rest[:at] + users[:half] + [goal] + users[half:] + rest[at + 1:]

    def middle(self, row):
        return TOP + ROW * (len(self.rows) - 1 - row) + BOX / 2

    def curve(self, path):
        """An SVG path from the lower side of the user to the upper side of what it uses."""

        def port(node, others, other):
            """The place on a box's side where an edge ends; edges to other places end at other places."""
            order = sorted(others, key=lambda n: n.x)
            if node.room is None or len(order) == 1:
                return node.x
            step = min(14, (node.width - 20) / (len(order) - 1))
            return node.x + step * (order.index(other) - (len(order) - 1) / 2)

        text = ""
        for upper, lower in zip(path, path[1:]):
            x0, y0 = port(upper, upper.below, lower), self.middle(upper.row) + BOX / 2
            x1, y1 = port(lower, lower.above, upper), self.middle(lower.row) - BOX / 2
            if upper.room is None:
                text += f" L{x0:.0f} {y0:.0f}"
            else:
                text = f"M{x0:.0f} {y0:.0f}"
            bend = (y1 - y0) / 2
            text += f" C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"
        return text

    def svg(self):
        height = TOP + ROW * (len(self.rows) - 1) + BOX + TOP
        font = "font-family=\"DejaVu Sans, Verdana, sans-serif\""
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" {font} font-size="12" fill="#1a1a1a">',
            "<title>Rooms of the source tree by layer</title>",
            "<desc>Drawn by tools/check_layers --svg. An arrow points from a room to a room that it uses. Arrows that "
            "longer paths imply are left out.</desc>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        ]
        framed = {layer: [i for i, inner in enumerate(self.layers) if int(inner) == layer] for layer in FRAMED}
        for layer, rows in framed.items():
            if len(rows) < 2:
                continue
            y = self.middle(rows[-1]) - BOX / 2 - 12
            fill, stroke = FRAMED[layer]
            lines.append(f'<rect x="4" y="{y:.0f}" width="{WIDTH - 8}" rx="8" fill="{fill}" stroke="{stroke}" '
                         f'stroke-dasharray="5 4" height="{self.middle(rows[0]) + BOX / 2 + 12 - y:.0f}"/>')
        for i, layer in enumerate(self.layers):
            name = f"layers {USERS}, {USERS + 1}" if layer == USERS else f"layer {layer:g}"
            if len(framed.get(int(layer), [])) > 1:
                name = f"layer {layer:.1f}"
            y = self.middle(i)
            lines.append(f'<text x="14" y="{y - 2:.0f}" font-weight="bold">{name}</text>')
            lines.append(f'<text x="14" y="{y + 13:.0f}" font-size="10" fill="#555">{WORDS.get(layer, "")}</text>')
        lines.append('<g fill="none" stroke="#555" stroke-width="1.3">')
        lines += [f'<path d="{self.curve(path)}" marker-end="url(#tip)"/>' for path in self.paths]
        for user, used in self.beside:
            side = 1 if user.x < used.x else -1
            y = self.middle(user.row)
            lines.append(f'<path d="M{user.x + side * user.width / 2:.0f} {y:.0f} '
                         f'L{used.x - side * used.width / 2:.0f} {y:.0f}" marker-end="url(#tip)"/>')
        lines.append("</g>")
        for room, node in self.nodes.items():
            folder, layer = self.rooms[room]
            x, y = node.x, self.middle(node.row)
            lines.append(f'<rect x="{x - node.width / 2:.0f}" y="{y - BOX / 2:.0f}" width="{node.width:.0f}" '
                         f'height="{BOX}" rx="5" fill="{COLOURS[min(int(layer), USERS)]}" stroke="#444"/>')
            lines.append(f'<text x="{x:.0f}" y="{y - 2:.0f}" text-anchor="middle" font-weight="bold">'
                         f"{escape(self.title(room))}</text>")
            lines.append(f'<text x="{x:.0f}" y="{y + 13:.0f}" text-anchor="middle" font-size="10" fill="#444">'
                         f"{escape(folder)}/</text>")
        return "\n".join(lines + ["</svg>", ""])


def draw(rooms, edges):
    """Returns the picture as text. `rooms` maps a name to (folder, layer); `edges` holds pairs (user, used)."""
    return Picture(rooms, edges).svg()
