package gctld

import (
	"net"
	"os"
	"strings"
)

// notify tells systemd how the daemon is, if it listens (sd_notify(3)). Nobody who
// waits for it can be told of an error, so there is none.
func notify(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if rest, abstract := strings.CutPrefix(name, "@"); abstract {
		name = "\x00" + rest
	}
	conn, err := net.Dial("unixgram", name)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
