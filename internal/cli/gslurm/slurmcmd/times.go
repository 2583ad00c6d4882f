package slurmcmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/cli/ui"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Clock writes times as SLURM_TIME_FORMAT asks: standard, relative, or a format of strftime(3).
type Clock struct {
	Now    time.Time
	layout string // "" is standard
}

// Clock returns the clock of the process.
func (c *Command) Clock() Clock { return Clock{c.Now(), c.Variable("SLURM_TIME_FORMAT")} }

// Format writes a time; absent stands for none.
func (k Clock) Format(t time.Time, absent string) string {
	if t.IsZero() {
		return absent
	}
	t = t.In(k.Now.Location())
	switch {
	case k.layout == "" || k.layout == "standard":
		return t.Format(ui.TimeLayout)
	case k.layout == "relative":
		return k.relative(t)
	}
	return strftime(k.layout, t)
}

// Stamp writes a time of the API.
func (k Clock) Stamp(t *timestamppb.Timestamp, absent string) string {
	return k.Format(ui.TimeOf(t), absent)
}

// relative names near days instead of their dates.
func (k Clock) relative(t time.Time) string {
	day := func(t time.Time) int64 {
		y, m, d := t.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400
	}
	switch diff := day(t) - day(k.Now); {
	case diff == 0:
		return t.Format("15:04:05")
	case diff == -1:
		return t.Format("Ystday 15:04")
	case diff == 1:
		return t.Format("Tomorr 15:04")
	case diff > -7 && diff < 7:
		return t.Format("Mon 15:04")
	case diff > -300 && diff < 300:
		return t.Format("_2 Jan 15:04")
	}
	return t.Format("_2 Jan 2006")
}

// strftime writes a time by a format of strftime(3).
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		layouts := map[byte]string{
			'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'y': "06", 'e': "_2", 'b': "Jan", 'h': "Jan", 'B': "January",
			'a': "Mon", 'A': "Monday", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'I': "03", 'p': "PM", 'Z': "MST",
			'z': "-0700", 'c': time.ANSIC, 'x': "01/02/06", 'X': "15:04:05", 'j': "002",
		}
		switch layout, known := layouts[format[i]]; {
		case format[i] == 's':
			fmt.Fprint(&b, t.Unix())
		case format[i] == '%':
			b.WriteByte('%')
		case known:
			b.WriteString(t.Format(layout))
		default:
			b.WriteString(format[i-1 : i+1])
		}
	}
	return b.String()
}

// Length writes a length of time as squeue does: 0:05, 12:00, 1:02:03, 1-02:03:04.
func Length(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s >= 86400:
		return fmt.Sprintf("%d-%02d:%02d:%02d", s/86400, s/3600%24, s/60%60, s%60)
	case s >= 3600:
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// LongLength writes a length of time as scontrol and sacct do: [days-]hh:mm:ss.
func LongLength(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	text := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / 86400; days > 0 {
		return fmt.Sprintf("%d-%s", days, text)
	}
	return text
}
