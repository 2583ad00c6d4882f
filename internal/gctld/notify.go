package gctld

import (
	"net"
	"os"
	"strings"
)

// notify reports the daemon's state to systemd, if systemd listens (sd_notify(3)). A failure has no
// consequence, so there is no error.
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
