// A server of Centrifugo's library: every SSE client that connects is subscribed to one channel.
//
// Prints its port. A line "ROWS PAYLOAD" on standard input publishes so many messages to the channel; the end of
// input ends the program.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/centrifugal/centrifuge"
)

func main() {
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		panic(err)
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{
			Credentials:   &centrifuge.Credentials{UserID: "bench"},
			Subscriptions: map[string]centrifuge.SubscribeOptions{"bench": {}},
		}, nil
	})
	if err := node.Run(); err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	// No pings: a client that only counts answers none.
	config := centrifuge.SSEConfig{PingPongConfig: centrifuge.PingPongConfig{PingInterval: -1, PongTimeout: -1}}
	go http.Serve(listener, centrifuge.NewSSEHandler(node, config))
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		rows, payload := 0, ""
		fmt.Sscan(lines.Text(), &rows, &payload)
		for ; rows > 0; rows-- {
			if _, err := node.Publish("bench", []byte(payload)); err != nil {
				panic(err)
			}
		}
	}
}
