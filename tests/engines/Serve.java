import org.apache.solr.client.solrj.embedded.*;

/** Serves the cores of a folder by HTTP; prints the port, and ends with its input. */
class Serve {
  public static void main(String[] arguments) throws Exception {
    JettyConfig config = JettyConfig.builder().setPort(0).setContext("/solr").build();
    JettySolrRunner solr = new JettySolrRunner(arguments[0], config);
    solr.start();
    System.out.println("port " + solr.getLocalPort());
    while (System.in.read() >= 0) {}
    System.exit(0);
  }
}
