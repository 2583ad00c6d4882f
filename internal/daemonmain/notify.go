package daemonmain

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// The states that a daemon reports to systemd (sd_notify(3)).
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	alive    = "WATCHDOG=1"
)

// Notify reports the daemon's state to systemd, if systemd listens. A failure has no consequence,
// so there is no error.
func Notify(state string) {
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

// Watchdog reports to systemd that the daemon is ready when check first returns, and that it is
// alive, three times in each interval of the unit's WatchdogSec=, until ctx ends. Each report waits
// for check, which takes the locks that the daemon's work takes: when it hangs, systemd restarts the
// daemon (sd_watchdog_enabled(3)). Without WatchdogSec= Watchdog returns after the first report.
func Watchdog(ctx context.Context, check func()) {
	check()
	Notify(Ready)
	interval, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || interval <= 0 {
		return
	}
	ticker := time.NewTicker(max(time.Duration(interval)*time.Microsecond/3, time.Millisecond))
	defer ticker.Stop()
	for {
		check()
		Notify(alive)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
