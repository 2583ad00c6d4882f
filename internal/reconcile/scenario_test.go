package reconcile

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// TestScenarios reads testdata/*.txt: the tasks of a node, and the actions.
func TestScenarios(t *testing.T) { scenario.Cases(t, "testdata/*.txt", answer) }

func answer(t *testing.T, picture string) string {
	t.Helper()
	var set *Set
	var seen []Seen
	var now cluster.Instant
	for line := range strings.Lines(picture) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch fields[0] {
		case "now":
			now = instant(t, fields[1])
		case "set":
			set = &Set{Version: 10, Recovering: len(fields) > 1 && fields[1] == "recovering"}
		case "acted":
			set.Acted, _ = strconv.ParseUint(fields[1], 10, 64)
		case "wanted":
			set.Tasks = append(set.Tasks, readWanted(t, fields[1:]))
		case "seen":
			seen = append(seen, readSeen(t, fields[1:]))
		default:
			t.Fatalf("bad line %q", line)
		}
	}
	actions, wake := Diff(set, seen, now)
	var out []string
	for _, a := range actions {
		line := fmt.Sprintf("%s %d.%d", a.Kind, a.ID.Job, a.ID.Attempt)
		if a.Kind == Deliver {
			line += fmt.Sprintf(" id=%d number=%d", a.Signal.ID, a.Signal.Number)
		}
		if a.Kind == Stop {
			line += " killat=" + time.Duration(a.KillAt).String()
		}
		out = append(out, line)
	}
	if wake != 0 {
		out = append(out, "wake "+time.Duration(wake).String())
	}
	return strings.Join(out, "\n")
}

func instant(t *testing.T, word string) cluster.Instant {
	t.Helper()
	d, err := time.ParseDuration(word)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Instant(d)
}

func readID(t *testing.T, word string) ID {
	t.Helper()
	var id ID
	if _, err := fmt.Sscanf(word, "%d.%d", &id.Job, &id.Attempt); err != nil {
		t.Fatalf("bad id %q: %v", word, err)
	}
	return id
}

func readWanted(t *testing.T, fields []string) Wanted {
	t.Helper()
	w := Wanted{ID: readID(t, fields[0])}
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "stop":
			w.Stop = true
		case "granted":
			w.Granted, _ = strconv.ParseUint(value, 10, 64)
		case "killwait":
			w.KillWait = time.Duration(instant(t, value))
		case "every":
			every, number, _ := strings.Cut(value, ":")
			n, _ := strconv.ParseInt(number, 10, 32)
			w.Every, w.Periodic.Number = time.Duration(instant(t, every)), int32(n)
		case "from":
			w.From = instant(t, value)
		case "signal":
			id, number, _ := strings.Cut(value, ":")
			i, _ := strconv.ParseUint(id, 10, 64)
			n, _ := strconv.ParseInt(number, 10, 32)
			w.Signals = append(w.Signals, Signal{ID: i, Number: int32(n)})
		default:
			t.Fatalf("bad field %q", field)
		}
	}
	return w
}

func readSeen(t *testing.T, fields []string) Seen {
	t.Helper()
	phases := map[string]Phase{"accepted": Accepted, "started": Started, "ended": Ended, "clean": Clean}
	s := Seen{ID: readID(t, fields[0]), Phase: phases[fields[1]]}
	if s.Phase == 0 {
		t.Fatalf("bad phase %q", fields[1])
	}
	for _, field := range fields[2:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "starting":
			s.Work = Starting
		case "working":
			s.Work = Working
		case "doomed":
			s.Doomed = true
		case "copies":
			s.CopiesOut = true
		case "at":
			s.Started = instant(t, value)
		case "periodic":
			s.Periodic = instant(t, value)
		case "killat":
			s.KillAt = instant(t, value)
		case "killed":
			s.Killed = instant(t, value)
		case "notbefore":
			s.NotBefore = instant(t, value)
		case "granted":
			s.Granted, _ = strconv.ParseUint(value, 10, 64)
		case "signalled":
			s.Signalled, _ = strconv.ParseUint(value, 10, 64)
		default:
			t.Fatalf("bad field %q", field)
		}
	}
	return s
}
