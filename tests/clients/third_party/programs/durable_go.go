// Follows a stream with the Go client of Durable Streams: prints each answer as one line of JSON.
// Arguments: the address, and how it waits: long-poll or sse.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	durablestreams "github.com/durable-streams/durable-streams/packages/client-go"
)

func main() {
	live := durablestreams.LiveModeLongPoll
	if os.Args[2] == "sse" {
		live = durablestreams.LiveModeSSE
	}
	client := durablestreams.NewClient()
	stream := client.Stream(os.Args[1])
	reading := stream.Read(context.Background(), durablestreams.WithLive(live))
	defer reading.Close()
	for {
		chunk, err := reading.Next()
		if errors.Is(err, durablestreams.Done) {
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(strings.ReplaceAll(string(chunk.Data), "\n", " "))
	}
}
