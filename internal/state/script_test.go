package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// script runs a scenario: each line of a directive is a command.
type script struct {
	t     *testing.T
	s     *State
	index uint64
	now   cluster.Instant
	plan  cluster.Plan // of the last pass
	log   []entry
}

// scriptLine is the parts of a line: words, and key=value.
type scriptLine struct {
	plain []string
	keys  map[string]string
}

func split(line string) scriptLine {
	w := scriptLine{keys: map[string]string{}}
	for _, f := range strings.Fields(line) {
		if k, v, found := strings.Cut(f, "="); found {
			w.keys[k] = v
		} else {
			w.plain = append(w.plain, f)
		}
	}
	return w
}

func (w scriptLine) has(flag string) bool { return slices.Contains(w.plain, flag) }

func (w scriptLine) number(key string, otherwise int64) int64 {
	v, there := w.keys[key]
	if !there {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (w scriptLine) duration(key string) time.Duration {
	v, there := w.keys[key]
	if !there {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		panic(err)
	}
	return d
}

func (w scriptLine) size(key string) cluster.Bytes {
	if w.keys[key] == "" {
		return 0
	}
	b, err := cluster.ParseBytes(w.keys[key], 1)
	if err != nil {
		panic(err)
	}
	return b
}

func (w scriptLine) list(key string) []string {
	if w.keys[key] == "" {
		return nil
	}
	return strings.Split(w.keys[key], ",")
}

// actor is a user by name; root is an administrator, op an operator.
func actor(name string) command.Actor {
	a := command.Actor{Identity: cluster.Identity{User: name, UID: 1000 + uint32(name[0]), GID: 100}}
	switch name {
	case "root":
		a.Identity.UID, a.Role = 0, command.RoleAdmin
	case "admin":
		a.Role = command.RoleAdmin
	case "op":
		a.Role = command.RoleOperator
	}
	return a
}

func (x *script) apply(c command.Command) string {
	x.index++
	x.log = append(x.log, entry{x.index, x.now, c})
	result := x.s.Apply(x.index, x.now, c)
	if err := x.s.Check(); err != nil {
		x.t.Errorf("after %T: %v", c, err)
	}
	restored, err := Decode(bytes.NewReader(encode(x.t, x.s)))
	if err == nil {
		restored.limits = x.s.limits
		err = restored.Check()
	}
	if err != nil && !errors.Is(err, ErrUnsupported) { // a test of a newer form
		x.t.Errorf("restored after %T: %v", c, err)
	}
	return answer(result)
}

// answer writes a result as users would read it.
func answer(r command.Result) string {
	switch r := r.(type) {
	case *command.Refusal:
		if r.Hint != "" {
			return fmt.Sprintf("refused (%d): %s\nhint: %s", r.Code, r.Message, r.Hint)
		}
		return fmt.Sprintf("refused (%d): %s", r.Code, r.Message)
	case *command.Done:
		return strings.Join(r.Notes, "\n")
	case *command.Submitted:
		text := fmt.Sprintf("submitted %v", r.First)
		if slices.Max(r.Counts) > 0 {
			text += fmt.Sprintf(" elements %v", r.Counts)
		}
		if r.SetAside > 0 {
			text += " set aside " + r.SetAside.String()
		}
		for _, o := range r.Over {
			text += fmt.Sprintf(" over %s: %s of %s", o.Node, o.Used, o.Limit)
		}
		if r.Again {
			text += " again"
		}
		return text
	case *command.Credited:
		return credited(r)
	case *command.Outcomes:
		var lines []string
		for _, o := range r.Jobs {
			line := fmt.Sprintf("%s %s", o.Ref, "done")
			if o.Refused != nil {
				line = fmt.Sprintf("%s %s", o.Ref, answer(o.Refused))
			} else {
				line += ", now " + o.State.String()
			}
			lines = append(lines, line)
		}
		if r.Again {
			lines = append(lines, "again")
		}
		return strings.Join(lines, "\n")
	case *command.Registered:
		return fmt.Sprintf("epoch %d", r.Epoch)
	case *command.Committed:
		text := fmt.Sprintf("started %v", r.Started)
		for _, s := range r.Stale {
			text += fmt.Sprintf("\nstale %d: %s", s.Job, s.Why)
		}
		return text
	case *command.StepCreated:
		if r.Busy != "" {
			return "busy: " + r.Busy
		}
		return fmt.Sprintf("step %d of attempt %d", r.Step, r.Attempt)
	case *command.Named:
		return "changed " + strings.Join(r.Names, " ")
	}
	return fmt.Sprintf("%T", r)
}

// names expands n[1-3],m.
func names(list string) []string {
	all, err := hostlist.Expand(list)
	if err != nil {
		panic(err)
	}
	return all
}

func TestScripts(t *testing.T) {
	scenario.Files(t, "testdata/*.txt", func(t *testing.T) func(*testing.T, *datadriven.TestData) string {
		return newScript(t).answerAll
	})
}

// newScript returns a scenario before its first line.
func newScript(t *testing.T) *script {
	x := &script{t: t, s: newState(scripted, new(table.Hasher)), now: 1}
	x.apply(&command.Init{ClusterID: "test"})
	return x
}

// answerAll runs the commands of a directive, one a line, and returns their answers.
func (x *script) answerAll(_ *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	for _, line := range scenario.Lines(d) {
		for a := range strings.SplitSeq(x.run(line), "\n") {
			if a != "" {
				out.WriteString(a + "\n")
			}
		}
	}
	return out.String()
}
