// Receives dvp webhooks. Needs Go 1.21 and nothing else.
//
//	WEBHOOK_SECRET=whsec_… PORT=3000 go run receiver.go
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	toleranceSeconds = 300
	bodyBytesMax     = 64 * 1024
)

// verify tells whether a delivery is genuine: one v1 matches the raw body, and t is near.
func verify(secret, header string, body []byte, now int64) bool {
	var times, given []string
	for _, part := range strings.Split(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			times = append(times, value)
		case "v1":
			given = append(given, value)
		}
	}
	if len(times) != 1 {
		return false
	}
	t, err := strconv.ParseInt(times[0], 10, 64)
	if err != nil || t < 0 {
		return false
	}
	// The whole secret is the key, whsec_ included.
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(times[0] + "."))
	mac.Write(body)
	ours := hex.EncodeToString(mac.Sum(nil))
	matches := false
	for _, value := range given {
		if hmac.Equal([]byte(ours), []byte(value)) {
			matches = true
		}
	}
	return matches && now-t <= toleranceSeconds && t-now <= toleranceSeconds
}

func main() {
	var seen sync.Map // A database table with a unique id, in earnest.
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytesMax))
		if err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		if !verify(os.Getenv("WEBHOOK_SECRET"), r.Header.Get("Svc-Signature"), body, time.Now().Unix()) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var event struct{ ID string }
		if json.Unmarshal(body, &event) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if _, known := seen.LoadOrStore(event.ID, true); !known {
			fmt.Println("handled", event.ID)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	port := os.Getenv("PORT")
	if port == "" {
		port = "3000"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening", listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(http.Serve(listener, nil))
}
