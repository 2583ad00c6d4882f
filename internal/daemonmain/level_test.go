package daemonmain

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/config"
)

func TestFollowLevel(t *testing.T) {
	log := config.Log{Level: "info"}.Logger(io.Discard)
	derived := log.With("member", "a")
	levels := make(chan string, 1)
	stop := FollowLevel(log, func() (config.Log, error) {
		if level := <-levels; level != "" {
			return config.Log{Level: level}, nil
		}
		return config.Log{}, errors.New("faulty")
	})
	defer stop()
	for _, c := range []struct {
		level string
		want  slog.Level
	}{{"debug", slog.LevelDebug}, {"", slog.LevelDebug}, {"error", slog.LevelError}} {
		levels <- c.level
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); len(levels) > 0 || !derived.Enabled(t.Context(), c.want) || derived.Enabled(t.Context(), c.want-1); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after %q: not %s", c.level, c.want)
			}
		}
	}
}
