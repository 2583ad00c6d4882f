package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// column is the meaning of a column of a table.
type column uint8

const (
	unused column = iota
	idColumn
	submitColumn
	runColumn
	gpusColumn
	procsColumn
	estimateColumn
	userColumn
	accountColumn
	columns
)

// columnNamed returns the columns of the tables of the ElasticFlow and Philly traces and of our
// own: id,submit,run,gpus,cpus,est,user,account. submit, run and one size are required.
func columnNamed(name string) column {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "id", "job_id", "jobid":
		return idColumn
	case "submit", "submission_time", "submit_time", "timestamp":
		return submitColumn
	case "run", "duration", "runtime":
		return runColumn
	case "gpus", "num_gpu", "num_gpus":
		return gpusColumn
	case "cpus", "procs":
		return procsColumn
	case "est", "estimate", "limit":
		return estimateColumn
	case "user":
		return userColumn
	case "account", "vc", "cluster", "virtual_cluster":
		return accountColumn
	}
	return unused
}

// table is a table's header.
type table struct {
	at    [columns]int // position of each column; -1: not there
	width int
}

func newTable(header string) (*table, error) {
	t := &table{}
	for i := range t.at {
		t.at[i] = -1
	}
	names := strings.Split(strings.TrimPrefix(header, "\ufeff"), ",")
	t.width = len(names)
	for i, name := range names {
		if first := slices.Index(names, name); first < i && columnNamed(name) != unused {
			return nil, fmt.Errorf("%w: the table's header names the column %q twice", ErrBad, cut(name))
		}
		if c := columnNamed(name); c != unused && t.at[c] < 0 {
			t.at[c] = i
		}
	}
	if t.at[submitColumn] < 0 || t.at[runColumn] < 0 || t.at[gpusColumn] < 0 && t.at[procsColumn] < 0 {
		return nil, fmt.Errorf("%w: the table's header %q names no column for the time of submission, the run time or the size; it should look like id,submit,run,gpus,est,user,account", ErrBad, cut(header))
	}
	return t, nil
}

// row reads one line of a table. A job without an ID has the number of its line.
func (r *reading) row(t *table, number int, line string) error {
	if strings.TrimSpace(line) == "" {
		return nil
	}
	fields := strings.Split(line, ",")
	if len(fields) != t.width {
		r.Bad.add(number, "%d fields, and the header has %d", len(fields), t.width)
		return nil
	}
	word := func(c column) string {
		if t.at[c] < 0 {
			return ""
		}
		return strings.TrimSpace(fields[t.at[c]])
	}
	j := Job{Line: number, ID: word(idColumn), User: word(userColumn), Account: word(accountColumn), Estimate: unknown}
	if t.at[idColumn] < 0 {
		j.ID = strconv.Itoa(number)
	}
	bad, ok := column(unused), false
	if j.Submit, ok = instant(word(submitColumn)); !ok {
		bad = submitColumn
	}
	if j.Run, ok = seconds(word(runColumn)); !ok {
		bad = runColumn
	}
	for i, into := range [...]*int32{&j.GPUs, &j.Procs} {
		c := gpusColumn + column(i)
		if word(c) == "" {
			continue
		}
		if *into, ok = count(word(c)); !ok {
			bad = c
		}
	}
	if text := word(estimateColumn); text != "" {
		if j.Estimate, ok = seconds(text); !ok {
			bad = estimateColumn
		}
	}
	if bad != unused {
		r.Bad.add(number, "%q is not a number or a date, or too large", cut(word(bad)))
		return nil
	}
	return r.add(j)
}
