package cluster

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// maxPad is the largest zero padding of a number in a file name (sbatch(1)).
const maxPad = 10

// PathValues holds the values of the letters in an output file name.
type PathValues struct {
	Job, Array JobID // Array is 0 for a job that is no array element
	Index      int32 // of the element
	Name, User string
	Restarts   int32
	Node       string // "": %N is kept unexpanded
	Rank       int32  // of the node; below 0: %n is kept unexpanded
}

// Expand expands a pattern as sbatch does: %j and %J job, %A array, %a index in it, %b the index
// modulo 10, %x name, %u user, %N node, %n rank of the node, %t task (0), %s step (batch), %r
// restarts, %% a percent sign. A number between % and the letter pads numbers with zeros. Other
// text is copied. A value cannot add directories.
func (w PathValues) Expand(pattern string) string {
	var b strings.Builder
	for rest := pattern; rest != ""; {
		before, after, found := strings.Cut(rest, "%")
		b.WriteString(before)
		if !found {
			break
		}
		digits := len(after) - len(strings.TrimLeft(after, "0123456789"))
		if digits == len(after) { // "%5" at the end
			b.WriteString("%" + after)
			break
		}
		width, err := strconv.Atoi("0" + after[:digits])
		if err != nil { // too many digits for a number
			width = maxPad
		}
		text, number, known := w.word(after[digits])
		switch {
		case !known:
			text = "%" + after[:digits+1]
		case number:
			text = strings.Repeat("0", max(0, min(width, maxPad)-len(text))) + text
		default:
			text = strings.NewReplacer("/", "_", "\x00", "_").Replace(text)
		}
		b.WriteString(text)
		rest = after[digits+1:]
	}
	if rest, ok := strings.CutPrefix(b.String(), s3Scheme); ok {
		return s3Scheme + path.Clean(rest)
	}
	return path.Clean(b.String())
}

// word returns the value of one letter.
func (w PathValues) word(letter byte) (text string, number, known bool) {
	switch letter {
	case 'j', 'J': // %J is JOB.STEP for a step and the job alone for a batch script
		return strconv.FormatUint(uint64(w.Job), 10), true, true
	case 'A':
		if w.Array == 0 {
			return strconv.FormatUint(uint64(w.Job), 10), true, true
		}
		return strconv.FormatUint(uint64(w.Array), 10), true, true
	case 'a':
		return strconv.Itoa(int(max(w.Index, 0))), true, true
	case 'b':
		return strconv.Itoa(int(max(w.Index, 0)) % 10), true, true
	case 's':
		return "batch", false, true
	case 'n':
		return strconv.Itoa(int(w.Rank)), true, w.Rank >= 0
	case 't':
		return "0", true, true
	case 'r':
		return strconv.Itoa(int(w.Restarts)), true, true
	case 'x':
		return w.Name, false, true
	case 'u':
		return w.User, false, true
	case 'N':
		return w.Node, false, w.Node != ""
	case '%':
		return "%", false, true
	}
	return "", false, false
}

// UnknownWords returns what follows each % of a pattern that Expand leaves as it is, such as
// "%q", each once. O(length).
func UnknownWords(pattern string) (unknown []string) {
	any := PathValues{Node: "node"}
	for rest := pattern; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return unknown
		}
		letters := strings.TrimLeft(after, "0123456789")
		if letters == "" {
			return unknown
		}
		r := []rune(letters)[0]
		if _, _, known := any.word(letters[0]); !known && !slices.Contains(unknown, "%"+string(r)) {
			unknown = append(unknown, "%"+string(r))
		}
		rest = letters[len(string(r)):]
	}
}
