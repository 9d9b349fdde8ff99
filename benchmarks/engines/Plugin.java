import com.o19s.es.ltr.feature.FeatureSet;
import com.o19s.es.ltr.ranker.LtrRanker;
import com.o19s.es.ltr.ranker.parser.XGBoostJsonParser;
import java.lang.reflect.Proxy;

/** Scores by the parser and the trees of the plugin Learning to Rank, as its RankerQuery does. */
class Plugin {
  public static void main(String[] folders) throws Exception {
    for (String folder : folders) {
      Documents documents = new Documents(folder);
      LtrRanker ranker = new XGBoostJsonParser().parse(named(documents), documents.file);
      LtrRanker.FeatureVector[] reused = new LtrRanker.FeatureVector[1];
      documents.score(
          features -> {
            LtrRanker.FeatureVector vector = reused[0] = ranker.newFeatureVector(reused[0]);
            for (int i = 0; i < features.length; i++)
              if (!Float.isNaN(features[i])) vector.setFeatureScore(i, features[i]);
            return ranker.score(vector);
          });
    }
  }

  /** A feature set of names alone, without the queries that compute them. */
  static FeatureSet named(Documents documents) {
    return (FeatureSet)
        Proxy.newProxyInstance(
            FeatureSet.class.getClassLoader(),
            new Class<?>[] {FeatureSet.class},
            (proxy, method, arguments) ->
                switch (method.getName()) {
                  case "hasFeature" -> documents.names.contains(arguments[0]);
                  case "featureOrdinal" -> documents.names.indexOf(arguments[0]);
                  case "size" -> documents.names.size();
                  default -> throw new UnsupportedOperationException(method.getName());
                });
  }
}
