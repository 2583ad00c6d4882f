package daemonmain

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/greylag/greylag/internal/config"
)

// FollowLevel sets the level of a logger from the configuration at each SIGHUP, until stop is
// called. Other settings need a restart.
func FollowLevel(log *slog.Logger, load func() (config.Log, error)) (stop func()) {
	hangups, stopped := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-hangups:
				now, err := load()
				if err != nil {
					log.Error("the log level is unchanged", "err", err)
					continue
				}
				now.SetLevel(log)
				log.Info("read the log level", "level", now.Level)
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(stopped)
	}
}
