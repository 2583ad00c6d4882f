package config

import (
	"io"
	"log/slog"
)

// Log configures what a daemon writes to standard error.
type Log struct {
	Level  string `toml:"level" one:"debug,info,warn,error"`
	Format string `toml:"format" one:"text,json"`
}

func defaultLog() Log { return Log{Level: "info", Format: "text"} }

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError} // never written

// Logger returns a logger with these settings. [Log.SetLevel] changes its level.
func (l Log) Logger(w io.Writer) *slog.Logger {
	level := new(slog.LevelVar)
	level.Set(levels[l.Level])
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(leveled{slog.NewJSONHandler(w, options), level})
	}
	return slog.New(leveled{slog.NewTextHandler(w, options), level})
}

// leveled is a handler whose level can change.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

// SetLevel gives a logger that Logger made, and all loggers made from it, this level.
func (l Log) SetLevel(log *slog.Logger) {
	if h, is := log.Handler().(leveled); is {
		h.level.Set(levels[l.Level])
	}
}
