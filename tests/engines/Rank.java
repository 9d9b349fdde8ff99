import java.nio.file.*;
import java.util.*;
import org.apache.solr.client.solrj.SolrQuery;
import org.apache.solr.client.solrj.embedded.EmbeddedSolrServer;
import org.apache.solr.common.*;

/** Ranks the lists of a CSV file (list, item, features) by the model of an embedded Solr. */
class Rank {
  public static void main(String[] arguments) throws Exception {
    Path home = Path.of(arguments[0]);
    try (EmbeddedSolrServer solr = new EmbeddedSolrServer(home, "ranker")) {
      List<String> lines = Files.readAllLines(home.resolve("items.csv"));
      String[] names = lines.get(0).split(",");
      Set<String> lists = new LinkedHashSet<>();
      List<SolrInputDocument> documents = new ArrayList<>();
      for (String line : lines.subList(1, lines.size())) {
        String[] cells = line.split(",");
        SolrInputDocument document = new SolrInputDocument();
        for (int i = 0; i < names.length; i++) document.addField(names[i], cells[i]);
        documents.add(document);
        lists.add(cells[0]);
      }
      solr.add(documents);
      solr.commit();
      List<String> ranked = new ArrayList<>();
      for (String list : lists) {
        SolrQuery query = new SolrQuery("list:" + list);
        query.setRows(1000).setFields("id", "score").set("rq", "{!ltr model=ranker reRankDocs=1000}");
        for (SolrDocument item : solr.query(query).getResults())
          ranked.add(list + "," + item.get("id") + "," + item.get("score"));
      }
      Files.write(home.resolve("ranked.csv"), ranked);
    }
  }
}
