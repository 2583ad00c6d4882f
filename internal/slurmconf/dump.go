package slurmconf

import (
	"fmt"
	"strings"
)

// Entity is a line of sacctmgr dump: a cluster, the account that the next lines are below, an
// account, or a user.
type Entity struct {
	Line
	Kind string // Cluster, Parent, Account, User
	Name string
}

// ReadDump reads the output of sacctmgr dump. The error is strict.Faults.
func ReadDump(path string) ([]Entity, error) {
	var all []Entity
	err := eachLine(path, func(r *reader, number int, text string) {
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			return
		}
		e, err := ParseEntity(text)
		if err != nil {
			r.fault(path, number, "%v", err)
			return
		}
		e.File, e.Number = path, number
		all = append(all, e)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// eachLine calls do for each line of a file, and returns the faults.
func eachLine(path string, do func(r *reader, number int, text string)) error {
	r := &reader{}
	text, err := readBounded(path, MaxSize)
	if err != nil {
		r.fault(path, 0, "%v", err)
	}
	number := 0
	for line := range strings.Lines(text) {
		if number++; r.stopped() {
			break
		}
		do(r, number, strings.TrimRight(line, "\r\n"))
	}
	if len(r.faults) > 0 {
		return r.faults
	}
	return nil
}

// ParseEntity reads KIND - 'NAME':KEY=VALUE:KEY='VALUE'.
func ParseEntity(text string) (Entity, error) {
	kind, rest, dashed := strings.Cut(text, "-")
	e := Entity{Kind: strings.TrimSpace(kind)}
	if rest = strings.TrimSpace(rest); !dashed || rest == "" {
		return e, fmt.Errorf("%w: want KIND - 'NAME':KEY=VALUE", ErrMalformed)
	}
	var err error
	if e.Name, rest, err = cutQuoted(rest); err != nil {
		return e, err
	}
	for rest != "" {
		key, after, is := strings.Cut(rest, "=")
		if !is || key == "" || strings.ContainsAny(key, ":'") {
			return e, fmt.Errorf("%w: %q is not KEY=VALUE", ErrMalformed, firstOf(rest))
		}
		var value string
		if value, rest, err = cutQuoted(after); err != nil {
			return e, err
		}
		e.Pairs = append(e.Pairs, Pair{strings.TrimSpace(key), value})
	}
	return e, nil
}

// cutQuoted returns the value up to the next colon, or in quotes, which may hold colons and quotes.
func cutQuoted(text string) (value, rest string, err error) {
	quoted, is := strings.CutPrefix(text, "'")
	if !is {
		value, rest, _ = strings.Cut(text, ":")
		for rest != "" && typed(value) { // GrpTRES=gres/gpu:h100=8
			more, after, _ := strings.Cut(rest, ":")
			value, rest = value+":"+more, after
		}
		return value, rest, nil
	}
	if at := strings.Index(quoted, "':"); at >= 0 {
		return quoted[:at], quoted[at+2:], nil
	}
	value, closed := strings.CutSuffix(strings.TrimRight(quoted, " \t:"), "'")
	if !closed {
		return "", "", fmt.Errorf("%w: no closing quote in %q", ErrMalformed, firstOf(text))
	}
	return value, "", nil
}

// typed reports whether a list of resources ends with one whose type and number are to follow.
func typed(value string) bool {
	last := value[strings.LastIndexByte(value, ',')+1:]
	return strings.HasPrefix(last, "gres/") && !strings.Contains(last, "=")
}

func firstOf(text string) string { return text[:min(len(text), 60)] }

// ReadTable reads a table that sacctmgr prints with --parsable or --parsable2: a heading, and a
// line per row. The error is strict.Faults.
func ReadTable(path string) ([]Line, error) {
	var heading []string
	var rows []Line
	err := eachLine(path, func(r *reader, number int, text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		cells := strings.Split(strings.TrimSuffix(text, "|"), "|")
		switch {
		case heading == nil:
			heading = cells
			return
		case len(cells) > len(heading):
			r.fault(path, number, "%d columns, want at most %d", len(cells), len(heading))
			return
		}
		row := Line{File: path, Number: number}
		for i, cell := range cells {
			row.Pairs = append(row.Pairs, Pair{heading[i], cell})
		}
		rows = append(rows, row)
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}
