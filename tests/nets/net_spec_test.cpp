#include "nets/spec/net_spec.hpp"

#include <cstdlib>
#include <initializer_list>

#include <catch2/catch.hpp>

#include "convolume/error.hpp"
#include "nets/data/dataset.hpp"
#include "nets/layers/group_norm.hpp"
#include "nets/layers/max_pool.hpp"
#include "nets/layers/transposed_convolution.hpp"
#include "nets/spec/net_json.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {
namespace {

const std::string head = "name = 'net'\n[input]\npatch = [4, 8, 8]\n";                           // lines 1 to 3
const std::string conv = "[[node]]\nname = 'a'\ntype = 'conv'\nout_channels = 2\nkernel = 3\n";  // 5 lines

NetSpec net(const std::string& rest, std::vector<std::string> overrides = {}) {
  return parse_net(head + rest, "net.toml", std::move(overrides));
}

/// Returns the layer of a node, which must be of this kind.
template <class Kind>
const Kind& as(const NodeSpec& node) {
  const auto* layer = dynamic_cast<const Kind*>(node.layer.get());
  REQUIRE(layer != nullptr);
  return *layer;
}

const ConvolutionKeys& conv_keys(const NodeSpec& node) { return as<ConvolutionLayer>(node).keys(); }

NodeSpec node(const std::string& body) {
  const NetSpec spec = net("[[node]]\nname = 'a'\n" + body);
  REQUIRE(spec.nodes.size() == 1);
  return spec.nodes[0];
}

ConvolutionKeys conv_node(const std::string& body) { return conv_keys(node(body)); }

/// Returns the message of the ConfigError, or "nothing".
std::string complaint(const std::string& text, std::vector<std::string> overrides = {}) {
  try {
    parse_net(text, "net.toml", std::move(overrides));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing";
}

void complains(const std::string& message, int line, std::initializer_list<std::string> words) {
  INFO(message);
  CHECK(message.find("net.toml:" + std::to_string(line) + ": ") == 0);
  for (const std::string& word : words) CHECK(message.find(word) != std::string::npos);
}

/// Removes an environment variable during its lifetime.
class Unset {
 public:
  explicit Unset(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) before_ = value;
    ::unsetenv(name);
  }
  ~Unset() {
    if (before_) ::setenv(name_, before_->c_str(), 1);
  }
  Unset(const Unset&) = delete;
  Unset& operator=(const Unset&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("convolutions are read with their defaults", "[net_spec]") {
  const auto plain = conv_node("type = 'conv'\nout_channels = 3\nkernel = [1, 2, 3]");
  CHECK(plain.out_channels == 3);
  CHECK(plain.kernel == Extent3{1, 2, 3});
  CHECK(plain.groups == 1);
  CHECK(plain.stride == Extent3::all(1));
  CHECK(plain.dilation == Extent3::all(1));
  CHECK(plain.padding == Extent3::all(0));
  CHECK_FALSE(plain.same);
  CHECK(plain.bias);
  CHECK(plain.activation.kind == Activation::Kind::none);

  const auto full = conv_node(
      "type = 'conv'\nout_channels = 4\nkernel = 3\ngroups = 2\nstride = 2\ndilation = [1, 2, 2]\npadding = [0, 1, 2]\n"
      "bias = false\nactivation = 'leaky_relu'\nslope = 0.25");
  CHECK(full.groups == 2);
  CHECK(full.kernel == Extent3::all(3));
  CHECK(full.stride == Extent3::all(2));
  CHECK(full.dilation == Extent3{1, 2, 2});
  CHECK(full.padding == Extent3{0, 1, 2});
  CHECK_FALSE(full.bias);
  CHECK(full.activation == Activation{Activation::Kind::leaky_relu, 0.25});

  CHECK(conv_node("type = 'conv'\nout_channels = 1\nkernel = 3\npadding = 'same'").same);
  CHECK_FALSE(conv_node("type = 'conv'\nout_channels = 1\nkernel = 3\npadding = 'valid'").same);
  const auto upwards = conv_node(
      "type = 'transposed_conv'\nout_channels = 4\nkernel = 3\nstride = 2\npadding = 1\noutput_padding = [0, 1, 1]");
  CHECK(node("type = 'transposed_conv'\nout_channels = 4\nkernel = 3").layer->text().find(" transposed ") !=
        std::string::npos);
  CHECK(node("type = 'conv'\nout_channels = 4\nkernel = 3").layer->text().find(" plain ") != std::string::npos);
  CHECK(upwards.output_padding == Extent3{0, 1, 1});
  CHECK(upwards.stride == Extent3::all(2));
}

TEST_CASE("every other node is read", "[net_spec]") {
  const auto text = [](const std::string& body) { return node(body).layer->text(); };
  CHECK(text("type = 'activation'") == "relu 0.01");
  for (const std::string name : {"none", "leaky_relu", "sigmoid", "tanh", "softsign"}) {
    CHECK(text("type = 'activation'\nslope = 0.5\nactivation = '" + name + "'") == name + " 0.5");
  }
  const auto pool = [](const std::string& keys) { return as<MaxPoolLayer>(node("type = 'max_pool'\n" + keys)).pool(); };
  CHECK(pool("") == ops::MaxPool{});
  CHECK(pool("window = [1, 2, 3]") == ops::MaxPool{{1, 2, 3}, {1, 2, 3}, Extent3::all(1)});
  CHECK(pool("window = 2\nstride = 1\ndilation = [1, 4, 4]") ==
        ops::MaxPool{Extent3::all(2), Extent3::all(1), {1, 4, 4}});
  CHECK(text("type = 'upsample'") == "upsample " + to_string(Extent3::all(2)));
  CHECK(text("type = 'upsample'\nfactor = [1, 3, 2]") == "upsample " + to_string(Extent3{1, 3, 2}));
  CHECK(text("type = 'crop'\nbefore = [1, 2, 3]\nafter = 1") ==
        "crop " + to_string(Extent3{1, 2, 3}) + " and " + to_string(Extent3::all(1)));
  CHECK(text("type = 'dropout'") == "dropout 0.5");
  CHECK(text("type = 'dropout'\nrate = 0.1") == "dropout 0.1");
  CHECK(text("type = 'group_norm'\ngroups = 4\nepsilon = 0.01") == "group_norm 4 0.01");
  CHECK(text("type = 'instance_norm'") == "group_norm 0 1e-05");
  CHECK(text("type = 'layer_norm'") == "group_norm 1 1e-05");
}

TEST_CASE("edges are read by name", "[net_spec]") {
  const NetSpec spec = net(conv +
                           "[[node]]\nname = 'b'\ntype = 'activation'\n"
                           "[[node]]\nname = 'c'\ntype = 'concat'\nfrom = ['input', 'b', 'a']\n"
                           "[[node]]\nname = 'd'\ntype = 'add'\nfrom = ['b', 'b']\n"
                           "[[node]]\nname = 'e'\ntype = 'activation'\nfrom = 'input'\n");
  REQUIRE(spec.nodes.size() == 5);
  CHECK(spec.nodes[0].inputs == std::vector<std::size_t>{0});
  CHECK(spec.nodes[1].inputs == std::vector<std::size_t>{1});
  CHECK(spec.nodes[2].inputs == std::vector<std::size_t>{0, 2, 1});
  CHECK(spec.nodes[3].inputs == std::vector<std::size_t>{2, 2});
  CHECK(spec.nodes[4].inputs == std::vector<std::size_t>{0});
  CHECK(spec.nodes[2].layer->text() == "concat");
  CHECK(spec.nodes[3].layer->text() == "add");
  CHECK(spec.nodes[0].line == 4);
  CHECK(spec.nodes[1].line == 9);
  CHECK(spec.name == "net");
  CHECK(spec.origin == "net.toml");
  CHECK(spec.patch == Extent3{4, 8, 8});
}

TEST_CASE("loss, optimiser and training are read, with defaults", "[net_spec]") {
  const NetSpec plain = net(conv);
  CHECK(plain.loss.kind == ops::LossKind::binary_cross_entropy);
  CHECK_FALSE(plain.loss.rebalance);
  CHECK(plain.optimizer.kind == OptimizerKind::adam);
  CHECK(plain.optimizer.learning_rate == 1e-3);
  CHECK(plain.optimizer.clip_norm == 0);
  CHECK(plain.training.batch == 1);
  CHECK_FALSE(plain.softmax());

  const NetSpec full = net(conv +
                           "[loss]\nkind = 'softmax_cross_entropy'\nrebalance = true\n"
                           "[optimizer]\nkind = 'sgd'\nlearning_rate = 0.5\nmomentum = 0.7\nnesterov = true\n"
                           "weight_decay = 0.25\nclip_norm = 2\nwarmup = 3\ndecay_every = 4\ndecay_factor = 0.1\n"
                           "[training]\nbatch = 2\niterations = 7\nvalidate_every = 5\ncheckpoint_every = 6\n");
  CHECK(full.softmax());
  CHECK(full.loss.rebalance);
  CHECK(full.optimizer.kind == OptimizerKind::sgd);
  CHECK(full.optimizer.learning_rate == 0.5);
  CHECK(full.optimizer.sgd.momentum == 0.7);
  CHECK(full.optimizer.sgd.nesterov);
  CHECK(full.optimizer.sgd.weight_decay == 0.25);
  CHECK(full.optimizer.clip_norm == 2);
  CHECK(full.optimizer.warmup == 3);
  CHECK(full.optimizer.decay_every == 4);
  CHECK(full.optimizer.decay_factor == 0.1);
  CHECK(full.training.batch == 2);
  CHECK(full.training.iterations == 7);
  CHECK(full.training.validate_every == 5);
  CHECK(full.training.checkpoint_every == 6);

  const NetSpec dice = net(conv +
                           "[loss]\nkind = 'dice'\nsmooth = 3\n[optimizer]\nbeta1 = 0.5\nbeta2 = 0.25\n"
                           "epsilon = 0.125\ndecoupled = true\nweight_decay = 2\n");
  CHECK(dice.loss.kind == ops::LossKind::dice);
  CHECK(dice.loss.smooth == 3);
  CHECK(dice.optimizer.adam.beta1 == 0.5);
  CHECK(dice.optimizer.adam.beta2 == 0.25);
  CHECK(dice.optimizer.adam.epsilon == 0.125);
  CHECK(dice.optimizer.adam.decoupled);
  CHECK(dice.optimizer.adam.weight_decay == 2);
  CHECK(net(conv + "[loss]\nkind = 'square'\n").loss.kind == ops::LossKind::square);
  CHECK(net(conv + "[loss]\npositive_weight = 3\n").loss.positive_weight == 3);
}

TEST_CASE("errors name file, line and key", "[net_spec]") {
  const auto wrong = [](const std::string& rest) { return complaint(head + rest); };
  SECTION("syntax") { complains(complaint("name = 'net'\n[input\n"), 2, {"]"}); }
  SECTION("unknown keys") {
    complains(wrong("colour = 1\n" + conv), 4, {"[input]", "colour", "patch"});
    complains(complaint("color = 1\n" + head + conv), 1, {"color"});
    complains(wrong(conv + "kernle = 3\n"), 9, {"[node]", "kernle", "kernel"});
    complains(wrong(conv + "[loss]\nweight = 3\n"), 10, {"[loss]", "weight"});
    complains(wrong(conv + "[optimizer]\nmomentum = 0.9\n"), 10, {"[optimizer]", "momentum"});
    complains(wrong(conv + "[training]\nepochs = 3\n"), 10, {"[training]", "epochs"});
    complains(wrong("[generator]\ntype = 'unet'\nwidth = 3\nheight = 3\n"), 7, {"[generator]", "height"});
    complains(wrong("[generator]\ntype = 'unet'\nwidth = 3\nkernel = [{ size = 3, side = 3 }]\n"), 7, {"side"});
    complains(wrong(conv + "output_padding = 1\n"), 9, {"output_padding"});
  }
  SECTION("unknown names") {
    complains(wrong("[[node]]\nname = 'a'\ntype = 'convolution'\n"), 6, {"type", "convolution", "conv"});
    complains(wrong(conv + "activation = 'gelu'\n"), 9, {"activation", "gelu", "relu"});
    complains(wrong(conv + "padding = 'full'\n"), 9, {"padding", "full", "same"});
    complains(wrong(conv + "stride = 2\npadding = 'same'\n"), 10, {"padding", "same"});
    complains(wrong(conv + "[loss]\nkind = 'hinge'\n"), 10, {"kind", "hinge", "dice"});
    complains(wrong(conv + "[optimizer]\nkind = 'rmsprop'\n"), 10, {"kind", "rmsprop", "sgd"});
    complains(wrong("[generator]\ntype = 'resnet'\n"), 5, {"type", "resnet", "unet"});
    complains(wrong("[generator]\ntype = 'unet'\nwidth = 2\nnorm = 'batch'\n"), 7, {"norm", "batch", "group"});
  }
  SECTION("missing keys") {
    complains(wrong("[[node]]\nname = 'a'\ntype = 'conv'\nkernel = 3\n"), 4, {"out_channels"});
    complains(wrong("[[node]]\nname = 'a'\ntype = 'conv'\nout_channels = 3\n"), 4, {"kernel"});
    complains(wrong("[[node]]\ntype = 'conv'\n"), 4, {"name"});
    complains(wrong("[[node]]\nname = 'a'\n"), 4, {"type"});
    complains(wrong("[[node]]\nname = 'a'\ntype = 'group_norm'\n"), 4, {"groups"});
    complains(wrong("[generator]\ntype = 'unet'\n"), 4, {"width"});
    complains(complaint("name = 'n'\n[input]\nchannels = 1\n" + conv), 2, {"patch"});
    CHECK(complaint("[input]\npatch = 3\n" + conv).find("'name' is missing") != std::string::npos);
    CHECK(complaint("name = 'n'\n" + conv).find("'patch' is missing") != std::string::npos);
  }
  SECTION("values of the wrong type or size") {
    complains(complaint("name = 3\n[input]\npatch = 3\n" + conv), 1, {"name", "text"});
    complains(complaint("name = 'n'\n[input]\npatch = [1, 2]\n" + conv), 3, {"patch", "[z, y, x]"});
    complains(complaint("name = 'n'\n[input]\npatch = 0\n" + conv), 3, {"patch", "too small"});
    complains(complaint("name = 'n'\ninput = 3\n" + conv), 2, {"input", "table"});
    complains(wrong("[[node]]\nname = 'a'\ntype = 'conv'\nout_channels = 2.5\nkernel = 3\n"), 7, {"out_channels"});
    complains(wrong("[[node]]\nname = 'a'\ntype = 'conv'\nout_channels = 0\nkernel = 3\n"), 7, {"out_channels"});
    complains(wrong(conv + "bias = 1\n"), 9, {"bias", "true or false"});
    complains(wrong(conv + "stride = [1, 1, 0]\n"), 9, {"stride", "too small"});
    complains(wrong(conv + "stride = [1, 1, 'x']\n"), 9, {"stride"});
    complains(wrong(conv + "from = 3\n"), 9, {"from"});
    complains(wrong(conv + "from = ['input', 3]\n"), 9, {"from"});
    complains(wrong(conv + "slope = 0\n"), 9, {"slope", "range"});
    complains(wrong("[[node]]\nname = 'a'\ntype = 'dropout'\nrate = 1\n"), 7, {"rate", "range"});
    complains(wrong(conv + "[optimizer]\nlearning_rate = 'fast'\n"), 10, {"learning_rate", "number"});
    complains(wrong(conv + "[optimizer]\nlearning_rate = nan\n"), 10, {"learning_rate", "range"});
    complains(wrong(conv + "[optimizer]\nlearning_rate = -1\n"), 10, {"learning_rate", "range"});
    complains(wrong(conv + "[training]\nbatch = 0\n"), 10, {"batch", "too small"});
    complains(wrong("[node]\nname = 'a'\n"), 4, {"node", "[[node]]"});
    complains(wrong("[generator]\ntype = 'unet'\nwidth = 2\ndepth = 9\n"), 7, {"depth", "8"});
  }
  SECTION("nodes that do not fit together") {
    complains(wrong(conv + "from = 'b'\n[[node]]\nname = 'b'\ntype = 'activation'\n"), 9, {"'b'", "'a'", "from"});
    complains(wrong(conv + "from = 'a'\n"), 9, {"'a'", "from"});
    complains(wrong(conv + conv), 10, {"'a'", "twice"});
    complains(wrong("[[node]]\nname = 'input'\ntype = 'activation'\n"), 5, {"'input'", "twice"});
    complains(wrong("[[node]]\nname = 'a.b'\ntype = 'activation'\n"), 5, {"a.b", "name"});
    complains(wrong("[[node]]\nname = ''\ntype = 'activation'\n"), 5, {"name"});
    complains(wrong("[[node]]\nname = 'a'\ntype = 'add'\n"), 4, {"'a'", "two"});
    complains(wrong(conv + "from = ['input', 'input']\n"), 4, {"'a'", "2 inputs"});
  }
  SECTION("neither or both of nodes and generator") {
    CHECK(complaint(head).find("generator") != std::string::npos);
    CHECK(complaint(head + conv + "[generator]\ntype = 'unet'\nwidth = 2\n").find("generator") != std::string::npos);
  }
}

TEST_CASE("overrides change values, and their errors name them", "[net_spec]") {
  const std::string generator = "[generator]\ntype = 'width_depth'\nwidth = 2\ndepth = 3\nkernel = 3\n";
  const NetSpec spec = net(generator, {"generator.width=5", "optimizer.learning_rate=0.25", "input.patch=[7, 9, 9]",
                                       "generator.width=6", "loss.kind='dice'"});
  CHECK(conv_keys(spec.nodes[0]).out_channels == 6);
  CHECK(spec.optimizer.learning_rate == 0.25);
  CHECK(spec.patch == Extent3{7, 9, 9});
  CHECK(spec.loss.kind == ops::LossKind::dice);

  const auto wrong = [&](const std::string& entry) { return complaint(head + generator, {entry}); };
  for (const std::string entry : {"width=5", "generator.width", "generator=3.5", "=.", ""}) {
    INFO(entry);
    CHECK(wrong(entry).find("--set " + entry + ":") != std::string::npos);
  }
  CHECK(wrong("generator.width=3 +").find("--set generator.width=3 +") != std::string::npos);
  CHECK(wrong("loss.kind=dice").find("--set loss.kind=dice") != std::string::npos);
  CHECK(wrong("genrator.width=3").find("--set genrator.width") != std::string::npos);
  CHECK(wrong("node.width=3").find("--set node.width") != std::string::npos);
  CHECK(wrong("generator.wdth=3").find("wdth") != std::string::npos);
  CHECK(wrong("generator.width='three'").find("width") != std::string::npos);
}

TEST_CASE("overrides survive in the source", "[net_spec]") {
  const std::string text = head + "[generator]\ntype = 'width_depth'\nwidth = 2\ndepth = 3\nkernel = 3";
  const NetSpec plain = parse_net(text, "net.toml");
  const NetSpec once = parse_net(text, "net.toml", {"generator.width=5", "optimizer.learning_rate=0.25"});
  const NetSpec again = parse_net(once.source, "elsewhere");
  CHECK(again.recipe() == once.recipe());
  CHECK(again.source == once.source);
  CHECK(again.recipe() != plain.recipe());
  // New overrides take precedence over overrides in the source.
  const NetSpec twice = parse_net(once.source, "net.toml", {"generator.width=7"});
  CHECK(conv_keys(twice.nodes[0]).out_channels == 7);
  CHECK(twice.optimizer.learning_rate == 0.25);
  const NetSpec third = parse_net(twice.source, "net.toml");
  CHECK(third.recipe() == twice.recipe());
  CHECK(third.source == twice.source);
}

TEST_CASE("a recipe tells apart whatever changes an iteration", "[net_spec]") {
  const std::string text = conv +
                           "[[node]]\nname = 'p'\ntype = 'max_pool'\nwindow = [1, 1, 2]\n"
                           "[[node]]\nname = 'n'\ntype = 'group_norm'\ngroups = 2\n"
                           "[[node]]\nname = 'd'\ntype = 'dropout'\nrate = 0.25\n"
                           "[[node]]\nname = 'u'\ntype = 'upsample'\nfactor = [1, 1, 2]\n"
                           "[[node]]\nname = 'c'\ntype = 'crop'\nbefore = [0, 1, 0]\n"
                           "[[node]]\nname = 'f'\ntype = 'activation'\nactivation = 'tanh'\n";
  const NetSpec spec = net(text);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const auto at = other.find(from);
    REQUIRE(at != std::string::npos);
    return net(other.replace(at, from.size(), to));
  };
  CHECK(net("# a comment\n" + text).recipe() == spec.recipe());
  CHECK(parse_net("name = 'another'\n" + head.substr(head.find('\n') + 1) + text, "b.toml").recipe() == spec.recipe());
  CHECK(net(text, {"training.iterations=3", "training.checkpoint_every=9", "training.validate_every=9"}).recipe() ==
        spec.recipe());
  const std::pair<const char*, const char*> architectural[] = {{"out_channels = 2", "out_channels = 4"},
                                                               {"kernel = 3", "kernel = [3, 3, 1]"},
                                                               {"kernel = 3", "kernel = 3\nbias = false"},
                                                               {"kernel = 3", "kernel = 3\npadding = 1"},
                                                               {"kernel = 3", "kernel = 3\npadding = 'same'"},
                                                               {"kernel = 3", "kernel = 3\ndilation = [1, 1, 2]"},
                                                               {"kernel = 3", "kernel = 3\nstride = [1, 1, 2]"},
                                                               {"kernel = 3", "kernel = 3\nactivation = 'relu'"},
                                                               {"'conv'", "'transposed_conv'"},
                                                               {"window = [1, 1, 2]", "window = [1, 1, 2]\nstride = 1"},
                                                               {"[1, 1, 2]", "[1, 2, 1]"},
                                                               {"groups = 2", "groups = 1"},
                                                               {"groups = 2", "groups = 2\nepsilon = 0.1"},
                                                               {"rate = 0.25", "rate = 0.5"},
                                                               {"factor = [1, 1, 2]", "factor = [1, 2, 1]"},
                                                               {"before", "after"},
                                                               {"'tanh'", "'relu'"},
                                                               {"name = 'f'", "name = 'g'"},
                                                               {"type = 'crop'", "type = 'crop'\nfrom = 'd'"}};
  for (const auto& [from, to] : architectural) {
    INFO(from << " -> " << to);
    CHECK(changed(from, to).architecture() != spec.architecture());
    CHECK(changed(from, to).recipe() != spec.recipe());
  }
  for (const std::string entry :
       {"training.batch=2", "input.patch=9", "loss.kind='square'", "loss.rebalance=true", "loss.positive_weight=2",
        "loss.smooth=2", "optimizer.kind='sgd'", "optimizer.learning_rate=1", "optimizer.beta1=0.5",
        "optimizer.beta2=0.5", "optimizer.epsilon=0.5", "optimizer.decoupled=true", "optimizer.weight_decay=1",
        "optimizer.clip_norm=1", "optimizer.warmup=1", "optimizer.decay_every=1", "optimizer.decay_factor=0.25"}) {
    INFO(entry);
    CHECK(net(text, {entry}).recipe() != spec.recipe());
    CHECK(net(text, {entry}).architecture() == spec.architecture());
  }
  const NetSpec sgd = net(text, {"optimizer.kind='sgd'"});
  CHECK(net(text, {"optimizer.kind='sgd'", "optimizer.momentum=0.5"}).recipe() != sgd.recipe());
  CHECK(net(text, {"optimizer.kind='sgd'", "optimizer.nesterov=true"}).recipe() != sgd.recipe());
  CHECK(net(text, {"input.channels=2"}).recipe() != spec.recipe());
}

TEST_CASE("generators make the nets of the papers", "[net_spec]") {
  const auto names = [](const std::vector<NodeSpec>& nodes) {
    std::string list;
    for (const NodeSpec& node : nodes) list += (list.empty() ? "" : " ") + node.name;
    return list;
  };
  SECTION("width and depth") {
    const auto nodes = width_depth_nodes(7, 4, {1, 3, 3}, {Activation::Kind::tanh}, 2);
    CHECK(names(nodes) == "conv1 conv2 conv3 logits");
    CHECK(conv_keys(nodes[1]).out_channels == 7);
    CHECK(conv_keys(nodes[1]).activation.kind == Activation::Kind::tanh);
    CHECK(conv_keys(nodes[3]).out_channels == 2);
    CHECK(conv_keys(nodes[3]).activation.kind == Activation::Kind::none);
    CHECK(conv_keys(nodes[3]).kernel == Extent3{1, 3, 3});
    CHECK(names(width_depth_nodes(7, 1, {1, 3, 3}, {}, 2)) == "logits");
  }
  SECTION("a plain U-Net") {
    UnetOptions o;
    o.width = 3;
    o.depth = 3;
    o.kernels = {{1, 3, 3}, {3, 3, 3}};
    o.pools = {{1, 2, 2}, {2, 2, 2}};
    const auto nodes = unet_nodes(o);
    CHECK(names(nodes) ==
          "down0_conv0 down0_conv1 pool0 down1_conv0 down1_conv1 pool1 down2_conv0 down2_conv1 "
          "upsample1 skip1 up1_conv0 up1_conv1 upsample0 skip0 up0_conv0 up0_conv1 logits");
    CHECK(conv_keys(nodes[0]).kernel == Extent3{1, 3, 3});
    CHECK(conv_keys(nodes[7]).kernel == Extent3{3, 3, 3});
    CHECK(conv_keys(nodes[7]).out_channels == 12);
    CHECK(as<MaxPoolLayer>(nodes[2]).pool().window == Extent3{1, 2, 2});
    CHECK(as<TransposedConvolutionLayer>(nodes[8]).keys().bias);
    CHECK(conv_keys(nodes[8]).stride == Extent3{2, 2, 2});
    CHECK(nodes[9].inputs == std::vector<std::size_t>{5, 9});  // encoder first
  }
  SECTION("all options") {
    UnetOptions o;
    o.depth = 2;
    o.kernels = {Extent3::all(3)};
    o.pools = {Extent3::all(2)};
    o.norm = "group";
    o.transposed = false;
    o.residual = true;
    o.dropout = 0.25;
    const auto nodes = unet_nodes(o);
    const std::string convs = "X_conv0 X_conv0_norm X_conv0_act X_conv1 X_conv1_norm X_conv1_act X_residual";
    const auto block = [&](const std::string& name) {
      std::string text = convs;
      for (auto at = text.find('X'); at != std::string::npos; at = text.find('X')) text.replace(at, 1, name);
      return text;
    };
    CHECK(names(nodes) == block("down0") + " pool0 " + block("down1") + " dropout upsample0 upsample0_conv skip0 " +
                              block("up0") + " logits");
    for (const NodeSpec& node : nodes) {
      if (const auto* norm = dynamic_cast<const GroupNormLayer*>(node.layer.get())) CHECK(norm->groups() == 8);
    }
  }
  SECTION("from a description, with shapes that fit") {
    const NetSpec spec =
        net("[generator]\ntype = 'unet'\nwidth = 2\ndepth = 3\nkernel = [{ size = [1, 3, 3] }, { size = 3 }]\n"
            "pool = [{ size = [1, 2, 2] }]\nnorm = 'instance'\nupsampling = 'nearest'\nout_channels = 3\n");
    const NetShapes shapes = infer_shapes(spec, spec.patch);
    CHECK(shapes.output().extent == spec.patch);
    CHECK(shapes.output().channels == 3);
    CHECK(shapes.offset() == Extent3::all(0));
    CHECK(shapes.alignment() == Extent3{1, 4, 4});
  }
}

TEST_CASE("the learning rate warms up and decays, whatever the total", "[net_spec]") {
  OptimizerSpec o;
  o.learning_rate = 8;
  CHECK(o.rate_at(1) == 8);
  CHECK(o.rate_at(1000000) == 8);
  o.warmup = 4;
  CHECK(o.rate_at(1) == 2);
  CHECK(o.rate_at(3) == 6);
  CHECK(o.rate_at(4) == 8);
  CHECK(o.rate_at(5) == 8);
  o.decay_every = 10;
  CHECK(o.rate_at(10) == 8);
  CHECK(o.rate_at(11) == 4);
  CHECK(o.rate_at(20) == 4);
  CHECK(o.rate_at(21) == 2);
  o.decay_factor = 0.25;
  CHECK(o.rate_at(21) == 0.5);
}

TEST_CASE("all nets of the zoo make sense", "[net_spec]") {
  const std::filesystem::path zoo = std::filesystem::path(CONVOLUME_SOURCE_DIR) / "nets" / "zoo";
  int nets = 0;
  for (const auto& entry : std::filesystem::directory_iterator(zoo)) {
    if (entry.path().extension() != ".toml") continue;
    INFO(entry.path().string());
    const NetSpec spec = load_net(entry.path());
    const NetShapes shapes = infer_shapes(spec, spec.patch);
    CHECK(shapes.output().extent.volume() > 0);
    CHECK(parse_net(spec.source, "again").recipe() == spec.recipe());
    CHECK(spec.name == entry.path().stem().string());
    ++nets;
  }
  CHECK(nets >= 2);
  CHECK_THROWS_AS(load_net(zoo / "there is no such net.toml"), IoError);
  // Without the folder of volumes, everything before the volumes is read.
  const Unset no_folder("CONVOLUME_DATA_DIR");
  for (const auto& entry : std::filesystem::directory_iterator(zoo / "data")) {
    INFO(entry.path().string());
    try {
      const Dataset data = load_dataset(entry.path());
      CHECK_FALSE(data.train.empty());
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      INFO(message);
      CHECK(message.find(entry.path().filename().string() + ":") != std::string::npos);
      CHECK(message.find("CONVOLUME_DATA_DIR is not set") != std::string::npos);
    }
  }
}

TEST_CASE("as JSON a net has its generator expanded, and every default, shape and crop written out") {
  const std::string json =
      to_json(net("[generator]\ntype = 'unet'\nwidth = 2\ndepth = 2\nnorm = 'instance'\n[optimizer]\nkind = 'sgd'\n"));
  for (const char* part : {R"("name": "pool0",)", R"("type": "max_pool",)", R"("type": "transposed_conv",)",
                           R"("type": "group_norm",)", R"("activation": "relu",)", R"("padding": "same",)",
                           R"("momentum": 0.9,)", R"("kind": "binary_cross_entropy",)", R"("weight_shape": [)",
                           R"("crop": [)", R"("extent": [)", R"("clip_norm": 0.0,)", R"("batch": 1)"}) {
    CHECK_THAT(json, Catch::Contains(part));
  }
  CHECK_THAT(json, !Catch::Contains("generator"));
  CHECK_THROWS_AS(to_json(net(conv + "padding = 100\n")), ConfigError);
}

}  // namespace convolume::nets
