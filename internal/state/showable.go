package state

import (
	"strings"
	"unicode/utf8"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// showable refuses a new text that would change how other text is shown.
func (s *State) showable(what string, texts ...string) *command.Refusal {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return command.Refusef(command.InvalidArgument, "%s %q is not valid UTF-8", what, text)
		}
		if i := strings.IndexFunc(text, cluster.UnsafeToDisplay); i >= 0 {
			return command.Refusef(command.InvalidArgument, "%s %q holds the control character %q", what, text, []rune(text[i:])[0])
		}
	}
	return nil
}

// told are the texts of a specification that users give it.
func told(spec *cluster.JobSpec) []string {
	return []string{
		spec.Name, spec.Owner.User, spec.Account, spec.Partition, spec.QOS, spec.Comment, spec.SubmitHost, spec.Reservation,
		spec.WorkDir, spec.Input, spec.Output, spec.Error, spec.Image, spec.Command,
	}
}
