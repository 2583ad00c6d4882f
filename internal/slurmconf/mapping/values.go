package mapping

import (
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// number reads a count from 0 to most; otherwise it notes the fault, and ok is false.
func (m *mapper) number(s setting, most int64) (n int64, ok bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s.value), 10, 64)
	if err != nil || n < 0 || n > most {
		m.note(Check, s, "%q is not a number from 0 to %d: not converted", s.value, most)
		return 0, false
	}
	return n, true
}

// seconds reads a number of seconds.
func (m *mapper) seconds(s setting) (time.Duration, bool) {
	n, ok := m.number(s, int64(100*365*24*time.Hour/time.Second))
	return time.Duration(n) * time.Second, ok
}

// duration reads a time as Slurm writes it: minutes, h:m:s or d-h. UNLIMITED is 0.
func (m *mapper) duration(s setting, otherwise time.Duration) time.Duration {
	d, err := cluster.ParseLimit(strings.TrimSpace(s.value))
	if err != nil {
		m.note(Check, s, "%q is not a time: not converted", s.value)
		return otherwise
	}
	return d
}

// memory reads a size in MiB; UNLIMITED is 0.
func (m *mapper) memory(s setting, most cluster.Bytes) cluster.Bytes {
	if strings.EqualFold(s.value, "UNLIMITED") {
		return 0
	}
	b, err := cluster.ParseBytes(s.value, cluster.MiB)
	if err != nil || b > most {
		m.note(Check, s, "%q is not a size up to %s: not converted", s.value, most)
		return 0
	}
	return b
}

// yes reports whether a value of a partition or a setting is YES.
func yes(value string) bool {
	switch strings.ToLower(value) {
	case "yes", "y", "true", "1", "up", "force":
		return true
	}
	return false
}
