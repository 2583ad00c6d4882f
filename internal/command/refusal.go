package command

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/greylag/greylag/pkg/cluster"
)

// Refusal says why a command changed nothing. It is an error.
type Refusal struct {
	Code    Code
	Message string // lower case, no full stop
	Hint    string // what to do next; may be empty
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// Refuse returns the answer to a command that changes nothing.
func Refuse(code Code, message, hint string) *Refusal {
	return &Refusal{Code: code, Message: message, Hint: hint}
}

// Refusef is Refuse with a formatted message and no hint.
func Refusef(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithHint sets the hint of r and returns r.
func WithHint(r *Refusal, format string, args ...any) *Refusal {
	r.Hint = fmt.Sprintf(format, args...)
	return r
}

// OneLine writes joined errors as one sentence.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// MaxMessage bounds a text that a node or a user sends, in bytes.
const MaxMessage = 512

// Sanitize returns a text of a node or a user as one line of at most MaxMessage bytes.
func Sanitize(text string) string { return cluster.Sanitize(text, MaxMessage) }

// CheckText refuses a new text that would change how other text is displayed.
func CheckText(what string, texts ...string) *Refusal {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return Refusef(InvalidArgument, "%s %q is not valid UTF-8", what, text)
		}
		if i := strings.IndexFunc(text, cluster.UnsafeToDisplay); i >= 0 {
			return Refusef(InvalidArgument, "%s %q holds the control character %q", what, text, []rune(text[i:])[0])
		}
	}
	return nil
}
