import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Follows the address in the first argument with the JDK's own client: nothing reconnects for it. */
public class FollowPlain {
    private static String lastId = "";

    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        while (true) {
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(arguments[0]));
            if (!lastId.isEmpty()) request.header("Last-Event-ID", lastId);
            try {
                read(client.send(request.build(), HttpResponse.BodyHandlers.ofLines()));
            } catch (java.io.IOException | java.io.UncheckedIOException lost) {
                // Asked for again, as after an end.
            }
            Thread.sleep(100);
        }
    }

    private static void read(HttpResponse<java.util.stream.Stream<String>> answer) {
        String[] event = {"message", ""};
        answer.body().forEach(line -> {
            if (line.startsWith("event: ")) event[0] = line.substring(7);
            else if (line.startsWith("id: ")) lastId = line.substring(4);
            else if (line.startsWith("data: ")) event[1] += line.substring(6);
            else if (line.isEmpty()) {
                if (!event[1].isEmpty()) System.out.printf("%s\t%s\t%s%n", event[0], lastId, event[1]);
                event[0] = "message";
                event[1] = "";
            }
        });
    }
}
