package raftlog

import (
	"bytes"
	"context"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// logAdapter passes raft's log lines on to slog. Debug lines are dropped.
type logAdapter struct{ to *slog.Logger }

func (a logAdapter) named(name string) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.Info, Output: a, DisableTime: true})
}

// Write takes one line: "[LEVEL] name: message: key=value …".
func (a logAdapter) Write(line []byte) (int, error) {
	level := slog.LevelInfo
	text := bytes.TrimSpace(line)
	if tag, rest, ok := bytes.Cut(text, []byte("]")); ok && bytes.HasPrefix(tag, []byte("[")) {
		switch string(tag) {
		case "[WARN":
			level = slog.LevelWarn
		case "[ERROR":
			level = slog.LevelError
		}
		text = bytes.TrimSpace(rest)
	}
	a.to.Log(context.Background(), level, string(text))
	return len(line), nil
}
