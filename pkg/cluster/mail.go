package cluster

import (
	"fmt"
	"strings"
)

// MailTypes is a set of events of a job that its user is notified of, as sbatch's --mail-type names
// them.
type MailTypes uint16

// The events.
const (
	MailBegin MailTypes = 1 << iota
	MailEnd
	MailFail
	MailRequeue
	MailInvalidDepend
	MailTimeLimit
	MailTimeLimit90
	MailTimeLimit80
	MailTimeLimit50
	MailArrayTasks // notify of each element of an array, not of the array as a whole
	MailWarning    // it is inactive, or has idle GPUs, or much output
	mailEnd        // behind the last one
)

// mailAll is what sbatch means by ALL, and MailWarning.
const mailAll = MailBegin | MailEnd | MailFail | MailRequeue | MailInvalidDepend | MailWarning

var mailTypeNames = [...]string{
	"BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND", "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS", "WARNING",
}

// Each returns the members of a set in the order of the constants.
func (m MailTypes) Each() []MailTypes {
	var all []MailTypes
	for t := MailBegin; t < mailEnd; t <<= 1 {
		if m&t != 0 {
			all = append(all, t)
		}
	}
	return all
}

// String returns the names joined by commas.
func (m MailTypes) String() string {
	var names []string
	for i, name := range mailTypeNames {
		if m&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseMailTypes reads names joined by commas, in any case. ALL and NONE are sbatch's.
func ParseMailTypes(list string) (m MailTypes, err error) {
words:
	for _, word := range strings.Split(list, ",") {
		switch {
		case strings.EqualFold(word, "NONE"):
			m = 0
			continue
		case strings.EqualFold(word, "ALL"):
			m |= mailAll
			continue
		}
		for i, name := range mailTypeNames {
			if strings.EqualFold(word, name) {
				m |= 1 << i
				continue words
			}
		}
		return 0, fmt.Errorf("not a mail type: %q", word)
	}
	return m, nil
}
