//go:build clockfault

package gctld

import (
	"os"
	"time"
)

// offsetVariable names a file that holds a duration such as "1h".
const offsetVariable = "GREYLAG_CLOCK_OFFSET"

// clock is the machine's clock plus the offset in the file, so that end-to-end tests can make a
// controller's clock jump. No shipped program has it.
func clock() time.Time {
	now := time.Now()
	text, err := os.ReadFile(os.Getenv(offsetVariable))
	if err != nil {
		return now // no offset yet
	}
	offset, err := time.ParseDuration(string(text))
	if err != nil {
		return now
	}
	return now.Add(offset)
}
