// Follows the address in the first argument with net/http alone: nothing reconnects for it.
package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

var lastID string

func main() {
	for {
		request, _ := http.NewRequest("GET", os.Args[1], nil)
		if lastID != "" {
			request.Header.Set("Last-Event-ID", lastID)
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			read(bufio.NewScanner(answer.Body))
			answer.Body.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func read(lines *bufio.Scanner) {
	name, data := "message", ""
	for lines.Scan() {
		word, text, _ := strings.Cut(lines.Text(), ": ")
		switch word {
		case "event":
			name = text
		case "id":
			lastID = text
		case "data":
			data += text
		}
		if lines.Text() == "" && data != "" {
			fmt.Printf("%s\t%s\t%s\n", name, lastID, data)
			name, data = "message", ""
		}
	}
}
