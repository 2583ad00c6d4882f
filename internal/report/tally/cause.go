package tally

import "strings"

// CauseClass classifies why a promise was broken.
type CauseClass uint8

// The classes. The order is part of the replicated state.
const (
	CauseOther      CauseClass = iota // an administrator's change of a reservation, the policy or a limit
	CauseNode                         // a node was lost, drained or not clean
	CauseOverrun                      // another job did not leave its nodes in time
	CauseController                   // no controller was running
	CauseRequest                      // the request of the job was changed, or the job was held
	CauseLate                         // the job started late
	causeClasses
)

// CauseClasses is the number of classes.
const CauseClasses = int(causeClasses)

// String returns the class as monitoring shows it.
func (c CauseClass) String() string {
	return [...]string{"administrator", "node", "overrun", "controller", "request", "late"}[c]
}

// ClassOf returns the class of a cause, a sentence in the history of a job.
func ClassOf(why string) CauseClass {
	switch {
	case strings.HasPrefix(why, "node "):
		return CauseNode
	case strings.HasPrefix(why, "job ") && strings.HasSuffix(why, " has not left its nodes in time"):
		return CauseOverrun
	case strings.HasPrefix(why, "no controller "):
		return CauseController
	case strings.HasPrefix(why, "the request "), strings.HasPrefix(why, "the job "):
		return CauseRequest
	case strings.HasPrefix(why, "it started "):
		return CauseLate
	}
	return CauseOther
}
