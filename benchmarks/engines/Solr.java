import java.nio.file.Path;
import java.util.*;
import org.apache.solr.core.SolrResourceLoader;
import org.apache.solr.ltr.feature.Feature;
import org.apache.solr.ltr.feature.ValueFeature;
import org.apache.solr.ltr.model.LTRScoringModel;
import org.apache.solr.ltr.norm.*;
import org.noggit.ObjectBuilder;

/** Scores by the normalizers and the trees of Solr, as its LTRScoringQuery does. */
class Solr {
  @SuppressWarnings("unchecked")
  public static void main(String[] arguments) throws Exception {
    Object absent = arguments[0]; // the `defaultValue` of each feature in Solr's feature store
    SolrResourceLoader loader = new SolrResourceLoader(Path.of(arguments[1]));
    for (String folder : Arrays.copyOfRange(arguments, 1, arguments.length)) {
      Documents documents = new Documents(folder);
      Map<String, Object> file = (Map<String, Object>) ObjectBuilder.fromJSON(documents.file);
      List<Feature> features = new ArrayList<>();
      List<Normalizer> norms = new ArrayList<>();
      for (Map<String, Object> feature : (List<Map<String, Object>>) file.get("features")) {
        Map<String, Object> params = new HashMap<>(Map.of("value", "0", "defaultValue", absent));
        String name = (String) feature.get("name");
        features.add(Feature.getInstance(loader, ValueFeature.class.getName(), name, params));
        Map<String, Object> norm = (Map<String, Object>) feature.get("norm");
        norms.add(
            norm == null
                ? IdentityNormalizer.INSTANCE
                : Normalizer.getInstance(
                    loader, (String) norm.get("class"), (Map<String, Object>) norm.get("params")));
      }
      LTRScoringModel model =
          LTRScoringModel.getInstance(
              loader, (String) file.get("class"), (String) file.get("name"), features, norms,
              "store", features, (Map<String, Object>) file.get("params"));
      documents.score(
          row -> {
            float[] values = row.clone();
            for (int i = 0; i < values.length; i++)
              if (Float.isNaN(values[i])) values[i] = features.get(i).getDefaultValue();
            model.normalizeFeaturesInPlace(values);
            return model.score(values);
          });
    }
  }
}
