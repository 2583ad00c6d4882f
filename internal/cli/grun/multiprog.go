package grun

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/step"
)

// programFile is the text of the file of --multi-prog.
type programFile struct{ path, text string }

// readProgramFile reads the file and checks it for the number of tasks; 0: not known before the step
// exists.
func readProgramFile(path string, tasks int) (*programFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, ui.Unread(err)
	}
	f := &programFile{path, string(text)}
	_, err = f.programs(tasks)
	return f, err
}

// programs returns the program of each rank.
func (f *programFile) programs(tasks int) ([][]string, error) {
	programs, err := parsePrograms(f.text, tasks)
	if err != nil {
		return nil, &ui.UsageError{Problem: f.path + ": " + err.Error(), Advice: "each line is RANKS PROGRAM ARGUMENT..., where RANKS is 0, 1-3,7 or *"}
	}
	return programs, nil
}

func parsePrograms(text string, tasks int) ([][]string, error) {
	programs := make([][]string, tasks)
	text = strings.ReplaceAll(text, "\\\n", " ")
	for number, line := range strings.Split(text, "\n") {
		words, err := splitWords(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		if len(words) == 0 {
			continue
		}
		if len(words) == 1 {
			return nil, fmt.Errorf("line %d: no program", number+1)
		}
		ranks, err := parseRanks(words[0], programs)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		for offset, rank := range ranks {
			if rank >= tasks {
				continue // for more tasks than this step has
			}
			if programs[rank] != nil {
				return nil, fmt.Errorf("line %d: task %d has a program already", number+1, rank)
			}
			letters := strings.NewReplacer("%t", strconv.Itoa(rank), "%o", strconv.Itoa(offset))
			for _, word := range words[1:] {
				programs[rank] = append(programs[rank], letters.Replace(word))
			}
		}
	}
	var missing []int
	for rank, program := range programs {
		if program == nil {
			missing = append(missing, rank)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no program for tasks %s of %d", step.FormatRanks(missing), tasks)
	}
	return programs, nil
}

// parseRanks reads 0, 1-3,7 or *: all ranks without a program.
func parseRanks(list string, programs [][]string) (ranks []int, err error) {
	if list == "*" {
		for rank, program := range programs {
			if program == nil {
				ranks = append(ranks, rank)
			}
		}
		return ranks, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 31)
		to, err2 := strconv.ParseUint(last, 10, 31)
		if err != nil || err2 != nil || from > to || to >= step.MaxTasks {
			return nil, fmt.Errorf("%q is not a list of ranks", list)
		}
		for rank := from; rank <= to; rank++ {
			ranks = append(ranks, int(rank))
		}
	}
	return ranks, nil
}

// splitWords splits a line at blanks outside quotes; # begins a comment.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	for i, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t' || r == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case r == '#' && !inWord && strings.TrimSpace(line[:i]) == "":
			return nil, nil
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
