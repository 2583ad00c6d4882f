package raftlog

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// logAdapter passes raft's log lines to slog. Debug lines are dropped.
type logAdapter struct{ to *slog.Logger }

func (a logAdapter) named(name string) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.Info, Output: &lines{logAdapter: a}, DisableTime: true})
}

// lines suppresses repeated messages: while a member is down or no election is won, raft logs three
// lines a second.
type lines struct {
	logAdapter
	mu   sync.Mutex
	said map[string]*repeated // by message and first field
}

// repeated is the state of one repeated message.
type repeated struct {
	last, next time.Time     // the last time, and when it is shown next
	gap        time.Duration // doubled whenever it is shown
	held       int           // suppressed since then
}

// longestGap, keepFor and maxRepeated bound what is remembered: the longest time between two
// showings, how long a message is kept that no longer comes, and the number of messages.
const longestGap, keepFor, maxRepeated = 10 * time.Minute, time.Minute, 256

// show decides about one line at an instant, and returns how many like it were suppressed before.
func (l *lines) show(text []byte, now time.Time) (held int, show bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := string(subject(text))
	r := l.said[key]
	if r == nil || now.Sub(r.last) > keepFor {
		if l.said == nil || len(l.said) >= maxRepeated {
			l.said = make(map[string]*repeated)
		}
		r = &repeated{gap: time.Second}
		l.said[key] = r
	}
	r.last = now
	if now.Before(r.next) {
		r.held++
		return 0, false
	}
	held, r.held, r.next, r.gap = r.held, 0, now.Add(r.gap), min(2*r.gap, longestGap)
	return held, true
}

// subject returns a line up to the end of its first field, which names the member.
func subject(text []byte) []byte {
	_, rest, ok := bytes.Cut(text, []byte("="))
	if !ok {
		return text
	}
	end := " "
	if value, quoted := bytes.CutPrefix(rest, []byte{'"'}); quoted {
		rest, end = value, `"`
	}
	_, after, _ := bytes.Cut(rest, []byte(end))
	return text[:len(text)-len(after)]
}

// Write takes one line: "[LEVEL] name: message: key=value …".
func (l *lines) Write(line []byte) (int, error) {
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
	if bytes.Contains(text, []byte(net.ErrClosed.Error())) { // this end closed it, as on every stop
		return len(line), nil
	}
	switch held, show := l.show(text, time.Now()); {
	case show && held > 0:
		l.to.Log(context.Background(), level, string(text), "repeated", held)
	case show:
		l.to.Log(context.Background(), level, string(text))
	}
	return len(line), nil
}
