//go:build clockfault

package gctld

import (
	"os"
	"time"
)

// offsetVariable names a file that holds a duration such as "1h".
const offsetVariable = "GREYLAG_CLOCK_OFFSET"

// clock is the machine's clock, moved by what the file says now: how the
// end-to-end tests let a controller's clock jump. No shipped program has it.
func clock() time.Time {
	now := time.Now()
	text, err := os.ReadFile(os.Getenv(offsetVariable))
	if err != nil {
		return now // nobody has moved it yet
	}
	offset, err := time.ParseDuration(string(text))
	if err != nil {
		return now
	}
	return now.Add(offset)
}
