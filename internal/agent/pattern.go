package agent

import (
	"path/filepath"
	"strconv"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// maxPad is the widest that a number in a file name is padded (sbatch(1)).
const maxPad = 10

// defaultOutput is the pattern of a job that named no output file.
func defaultOutput(w *greylagv1.WantedTask) string {
	switch {
	case w.GetRank() > 0:
		return "greylag-%j-%n.out"
	case w.GetArrayId() != 0:
		return "greylag-%A_%a.out"
	}
	return "greylag-%j.out"
}

// expand writes a pattern for one task, as sbatch does: %j job, %A array, %a
// index in it, %x name, %u user, %N node, %n rank of the node, %t task (0), %r
// restarts, %% a percent sign. A number between % and the letter pads numbers
// with zeros. What is not a pattern stays as it is. A name cannot add folders.
func expand(pattern string, w *greylagv1.WantedTask, node string) string {
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
		text, number, known := word(after[digits], w, node)
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
	return filepath.Clean(b.String())
}

// word is what one letter stands for.
func word(letter byte, w *greylagv1.WantedTask, node string) (text string, number, known bool) {
	switch letter {
	case 'j':
		return strconv.FormatUint(w.GetJob(), 10), true, true
	case 'A':
		if w.GetArrayId() == 0 {
			return strconv.FormatUint(w.GetJob(), 10), true, true
		}
		return strconv.FormatUint(w.GetArrayId(), 10), true, true
	case 'a':
		return strconv.Itoa(int(max(w.GetArrayIndex(), 0))), true, true
	case 'n':
		return strconv.Itoa(int(w.GetRank())), true, true
	case 't':
		return "0", true, true
	case 'r':
		return strconv.Itoa(int(w.GetRestarts())), true, true
	case 'x':
		return w.GetName(), false, true
	case 'u':
		return w.GetUser(), false, true
	case 'N':
		return node, false, true
	case '%':
		return "%", false, true
	}
	return "", false, false
}
