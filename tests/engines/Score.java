import ai.onnxruntime.*;
import java.nio.file.*;
import java.util.*;

/** Scores each list of a CSV file (list, item, features) by each model of a folder, alone. */
class Score {
  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[0]);
    Map<String, List<float[]>> lists = new LinkedHashMap<>();
    List<String> lines = Files.readAllLines(folder.resolve("items.csv"));
    for (String line : lines.subList(1, lines.size())) {
      String[] cells = line.split(",");
      float[] features = new float[cells.length - 2];
      for (int i = 0; i < features.length; i++) features[i] = Float.parseFloat(cells[i + 2]);
      lists.computeIfAbsent(cells[0], key -> new ArrayList<>()).add(features);
    }
    OrtEnvironment environment = OrtEnvironment.getEnvironment();
    for (String name : Arrays.copyOfRange(arguments, 1, arguments.length)) {
      List<String> scores = new ArrayList<>();
      try (OrtSession session = environment.createSession(folder.resolve(name + ".onnx").toString())) {
        for (List<float[]> items : lists.values()) {
          float[][][] features = {items.toArray(new float[0][])};
          try (OnnxTensor tensor = OnnxTensor.createTensor(environment, features);
              OrtSession.Result result = session.run(Map.of("features", tensor))) {
            for (float score : ((float[][]) result.get("scores").get().getValue())[0])
              scores.add(Float.toString(score));
          }
        }
      }
      Files.write(folder.resolve(name + ".csv"), scores);
    }
  }
}
