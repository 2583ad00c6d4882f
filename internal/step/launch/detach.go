package launch

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/step/stream"
)

// detachKeys finds a sequence of keys in the input.
type detachKeys struct {
	sequence []byte
	held     []byte // typed keys that begin the sequence
}

// scan returns the input to pass on, and whether the sequence has been typed. The rest of data is then
// dropped.
func (k *detachKeys) scan(data []byte) (pass []byte, found bool) {
	if len(k.sequence) == 0 {
		return data, false
	}
	for _, b := range data {
		k.held = append(k.held, b)
		for !bytes.HasPrefix(k.sequence, k.held) {
			pass, k.held = append(pass, k.held[0]), k.held[1:]
		}
		if len(k.held) == len(k.sequence) {
			k.held = nil
			return pass, true
		}
	}
	return pass, false
}

// DefaultDetachKeys detach unless the user chooses others.
const DefaultDetachKeys = `ctrl-\,d`

// ParseDetachKeys reads keys joined by commas: a character, or ctrl- and a character. "none" is no key.
func ParseDetachKeys(text string) (sequence []byte, err error) {
	if text == "none" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		name, ctrl := strings.CutPrefix(strings.ToLower(word), "ctrl-")
		switch {
		case ctrl && len(name) == 1 && (name[0] >= 'a' && name[0] <= 'z' || strings.Contains(`@[\]^_`, name)):
			sequence = append(sequence, name[0]&0x1f)
		case len(word) == 1 && word[0] > ' ' && word[0] < 0x7f:
			sequence = append(sequence, word[0])
		default:
			return nil, fmt.Errorf("%w: %q", errDetachKeys, word)
		}
	}
	return sequence, nil
}

var errDetachKeys = errors.New(`want keys separated by commas, such as ctrl-p,ctrl-q or ctrl-\,d, or none`)

// detachable reports whether the step can continue without this program.
func (r *running) detachable() bool { return r.Program.PTY && len(r.nodes) == 1 }

// detach asks the node to continue the step without this program.
func (r *running) detach() {
	if r.ending || r.detached {
		return
	}
	if r.Leave != nil {
		if err := r.Leave(); err != nil {
			r.Note(true, "cannot detach: "+err.Error())
			return
		}
	}
	r.order(func(c *stream.Conn) error { return c.Send(stream.Detach, 0) })
	r.after(detachTime, func() {
		r.Note(true, "cannot detach: no answer from "+r.silent())
		r.leaving, r.status = true, StatusLost
	})
}

// left records that the step continues without this program.
func (r *running) left(replaced bool) {
	r.detached = true
	if replaced {
		r.Note(false, "detached: another command attached to step "+r.ID)
		return
	}
	r.Note(false, fmt.Sprintf("detached; reattach with gctl attach %s", r.ID))
}
