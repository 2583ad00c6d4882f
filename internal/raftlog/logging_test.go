package raftlog

import (
	"fmt"
	"testing"
	"time"
)

// TestRepeatedLinesAreHeldBack checks that a member that is down for a day does not fill the
// leader's log, and that each new outage is logged at once.
func TestRepeatedLinesAreHeldBack(t *testing.T) {
	var l lines
	now := time.Unix(1e9, 0)
	down := func(peer string, attempt int) []byte {
		return fmt.Appendf(nil, `raft: failed to heartbeat to: peer="{Voter %s 10.0.0.1}" backoff time=%dms error="refused"`, peer, attempt)
	}
	shown, held := 0, 0
	for i := range 24 * 3600 * 3 {
		now = now.Add(time.Second / 3)
		if n, show := l.show(down("c3", i), now); show {
			shown, held = shown+1, held+n
		}
		if i == 1000 {
			if _, show := l.show(down("c2", i), now); !show {
				t.Error("another member's line was held back")
			}
		}
	}
	if shown < 140 || shown > 160 || held+shown < 250_000 {
		t.Errorf("%d lines shown, %d held back: want one in ten minutes and the rest counted", shown, held)
	}
	if n, show := l.show(down("c3", 0), now.Add(2*time.Minute)); !show || n != 0 {
		t.Errorf("a new outage: %d, %v", n, show)
	}
	for text, want := range map[string]string{"plain": "plain", "a: b=c d=e": "a: b=c ", `a: b="c d" e=f`: `a: b="c d"`, "a: b=": "a: b="} {
		if got := string(subject([]byte(text))); got != want {
			t.Errorf("%s: subject %q, want %q", text, got, want)
		}
	}
}
