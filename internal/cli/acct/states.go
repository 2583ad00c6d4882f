package acct

import (
	"fmt"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/cluster"
)

// never are states of Slurm in which no job here is ever. They may be asked for among
// others, so that scripts which list all final states work.
func never() []string {
	return []string{"BOOT_FAIL", "BF", "REQUEUED", "RQ", "RESIZING", "RS", "REVOKED", "RV"}
}

// States reads names and codes of states, joined by commas; nil means any state.
func States(value string) ([]greylagv1.JobState, error) {
	var states []greylagv1.JobState
	for _, word := range strings.Split(value, ",") {
		word = strings.TrimSpace(word)
		state, err := cluster.ParseJobState(word)
		switch {
		case err == nil:
			states = append(states, greylagv1.JobState(state))
		case strings.EqualFold(word, "all"):
			return nil, nil
		case word != "" && !slices.Contains(never(), strings.ToUpper(word)):
			return nil, unknownState(word)
		}
	}
	if len(states) == 0 {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("jobs are never in state %q", value), Advice: "omit --state for jobs in any state"}
	}
	return states, nil
}

func unknownState(word string) error {
	var names []string
	for s := cluster.Pending; s <= cluster.OutOfMemory; s++ {
		names = append(names, s.String())
	}
	advice := "the states are " + strings.Join(names, ", ")
	if near := getopt.Closest(strings.ToUpper(word), names); near != "" {
		advice = "did you mean " + near + "?"
	}
	return &ui.UsageError{Problem: fmt.Sprintf("unknown state %q", word), Advice: advice}
}
