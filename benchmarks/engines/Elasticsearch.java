import java.util.*;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.inference.InferenceResults;
import org.elasticsearch.search.SearchModule;
import org.elasticsearch.xcontent.*;
import org.elasticsearch.xpack.core.ml.inference.*;
import org.elasticsearch.xpack.core.ml.inference.trainedmodel.LearningToRankConfig;
import org.elasticsearch.xpack.core.ml.inference.trainedmodel.inference.InferenceDefinition;

/** Scores by the request's parser and the trees of Elasticsearch, as its rescorer does. */
class Elasticsearch {
  public static void main(String[] folders) throws Exception {
    List<NamedXContentRegistry.Entry> entries =
        new ArrayList<>(new SearchModule(Settings.EMPTY, List.of()).getNamedXContents());
    entries.addAll(new MlInferenceNamedXContentProvider().getNamedXContentParsers());
    entries.addAll(new org.elasticsearch.xpack.core.ml.ltr.MlLTRNamedXContentProvider().getNamedXContentParsers());
    XContentParserConfiguration registry =
        XContentParserConfiguration.EMPTY.withRegistry(new NamedXContentRegistry(entries));
    for (String folder : folders) {
      Documents documents = new Documents(folder);
      TrainedModelConfig request;
      try (XContentParser parser = XContentType.JSON.xContent().createParser(registry, documents.file)) {
        request = TrainedModelConfig.STRICT_PARSER.apply(parser, null).setModelId("ranker").validate(true).build();
      }
      LearningToRankConfig config = (LearningToRankConfig) request.getInferenceConfig();
      List<String> extracted = new ArrayList<>();
      config.getQueryFeatureExtractorBuilders().forEach(x -> extracted.add(x.featureName()));
      if (!extracted.equals(documents.names)) throw new IllegalStateException("features " + extracted);
      String definition = org.elasticsearch.common.Strings.toString(request.getModelDefinition());
      InferenceDefinition model;
      try (XContentParser parser = XContentType.JSON.xContent().createParser(registry, definition)) {
        model = InferenceDefinition.fromXContent(parser);
      }
      documents.score(
          features -> {
            Map<String, Object> fields = new HashMap<>();
            for (int i = 0; i < features.length; i++)
              if (!Float.isNaN(features[i])) fields.put(documents.names.get(i), features[i]);
            InferenceResults results = model.infer(fields, config);
            return ((Number) results.predictedValue()).floatValue();
          });
    }
  }
}
