// Follows the address in the first argument with an SSE library, which reconnects by itself.
package main

import (
	"fmt"
	"os"

	"github.com/launchdarkly/eventsource"
)

func main() {
	stream, err := eventsource.Subscribe(os.Args[1], "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		select {
		case event := <-stream.Events:
			name := event.Event()
			if name == "" {
				name = "message"
			}
			fmt.Printf("%s\t%s\t%s\n", name, event.Id(), event.Data())
		case <-stream.Errors:
			// A lost connection is one of these; the library goes on.
		}
	}
}
