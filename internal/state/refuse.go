package state

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/command"
)

// refuse is the answer to a command that changes nothing.
func refuse(code command.Code, message, hint string) *command.Refusal {
	return &command.Refusal{Code: code, Message: message, Hint: hint}
}

func refusef(code command.Code, format string, args ...any) *command.Refusal {
	return &command.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// hinting adds what to do next.
func hinting(r *command.Refusal, format string, args ...any) *command.Refusal {
	r.Hint = fmt.Sprintf(format, args...)
	return r
}

// oneLine writes joined errors as one sentence.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
