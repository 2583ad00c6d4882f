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

// Logger returns a logger with these settings.
func (l Log) Logger(w io.Writer) *slog.Logger {
	level := map[string]slog.Level{"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError}[l.Level] // else 0, info
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
