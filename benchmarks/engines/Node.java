import java.nio.file.*;
import java.util.*;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.Node;
import org.opensearch.plugins.PluginInfo;

/** A node of OpenSearch with the plugin Learning to Rank on a port; ends with its input. */
class Ranking extends Node {
  Ranking(Environment environment, Collection<PluginInfo> plugins) {
    super(environment, plugins, true);
  }

  static PluginInfo plugin(Class<?> kind) {
    var version = org.opensearch.Version.CURRENT;
    return new PluginInfo(
        kind.getName(), "-", "-", version, "21", kind.getName(), null, List.of(), false);
  }

  public static void main(String[] arguments) throws Exception {
    Path home = Path.of(arguments[0]);
    Files.createDirectories(home.resolve("config"));
    Settings.Builder settings = Settings.builder().put("path.home", home).put("node.name", "node");
    settings.put("discovery.type", "single-node").put("network.host", "127.0.0.1");
    settings.put("http.type", "netty4").put("http.port", arguments[1]);
    settings.put("transport.type", "netty4").put("transport.port", "0");
    Environment environment = new Environment(settings.build(), home.resolve("config"));
    var http = plugin(org.opensearch.transport.Netty4ModulePlugin.class);
    var ltr = plugin(com.o19s.es.ltr.LtrQueryParserPlugin.class);
    new Ranking(environment, List.of(http, ltr)).start();
    System.out.println("started");
    while (System.in.read() >= 0) {}
    System.exit(0);
  }
}
