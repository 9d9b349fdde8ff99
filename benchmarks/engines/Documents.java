import java.io.*;
import java.nio.file.*;
import java.util.*;

/** Documents of a folder as rows of features, NaN where a document lacks one, and their scores. */
class Documents {
  interface Model {
    float score(float[] features) throws Exception;
  }

  final Path folder;
  final List<String> names;
  final String file;

  Documents(String folder) throws IOException {
    this.folder = Path.of(folder);
    names = Files.readAllLines(this.folder.resolve("features.txt"));
    file = Files.readString(this.folder.resolve("model.json"));
  }

  void score(Model model) throws Exception {
    Path rows = folder.resolve("documents.bin"), scores = folder.resolve("scores.bin");
    try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(rows)));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(scores)))) {
      float[] features = new float[names.size()];
      while (true) {
        try {
          features[0] = in.readFloat();
        } catch (EOFException end) {
          return;
        }
        for (int i = 1; i < features.length; i++) features[i] = in.readFloat();
        out.writeFloat(model.score(features));
      }
    }
  }
}
