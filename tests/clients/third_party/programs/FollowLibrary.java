import com.launchdarkly.eventsource.ConnectStrategy;
import com.launchdarkly.eventsource.ErrorStrategy;
import com.launchdarkly.eventsource.EventSource;
import com.launchdarkly.eventsource.MessageEvent;
import java.net.URI;

/** Follows the address in the first argument with an SSE library, which reconnects by itself. */
public class FollowLibrary {
    public static void main(String[] arguments) {
        EventSource source = new EventSource.Builder(ConnectStrategy.http(URI.create(arguments[0])))
            .errorStrategy(ErrorStrategy.alwaysContinue())
            .build();
        for (MessageEvent event : source.messages()) {
            System.out.printf("%s\t%s\t%s%n", event.getEventName(), event.getLastEventId(), event.getData());
        }
    }
}
