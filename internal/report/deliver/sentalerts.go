package deliver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// SentAlerts is the list of sent alerts, a file with one line each. It is locked while it is open,
// so that two concurrent runs do not send the same alert.
type SentAlerts struct {
	f    *os.File
	seen map[string]bool
}

// OpenSentAlerts opens or creates the list. It waits until another run has closed it.
func OpenSentAlerts(path string) (*SentAlerts, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	t := &SentAlerts{f: f, seen: make(map[string]bool)}
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadString('\n')
		if err == nil { // an incomplete line was cut off: the alert is sent again
			t.seen[strings.TrimSuffix(line, "\n")] = true
			continue
		}
		if !errors.Is(err, io.EOF) {
			return nil, errors.Join(err, f.Close())
		}
		if line != "" {
			_, err = f.WriteString("\n")
			return t, err
		}
		return t, nil
	}
}

func lineOf(channel, id string) string {
	return strings.NewReplacer("\n", " ", "\r", " ").Replace(channel + " " + id)
}

// Has reports whether an alert was sent over a channel.
func (t *SentAlerts) Has(channel, id string) bool { return t.seen[lineOf(channel, id)] }

// Add records a sent alert durably.
func (t *SentAlerts) Add(channel, id string) error {
	line := lineOf(channel, id)
	if _, err := t.f.WriteString(line + "\n"); err != nil {
		return err
	}
	t.seen[line] = true
	return t.f.Sync()
}

// Close unlocks and closes the list.
func (t *SentAlerts) Close() error {
	if err := t.f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}
