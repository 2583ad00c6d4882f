package gqueue

import (
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// maxIndent is the number of levels that are indented.
const maxIndent = 20

// tree puts each job below the first listed job that it depends on, and draws the branches before the
// IDs. Jobs of one level keep their order. O(jobs + dependencies).
func tree(rows []row) []row {
	at := map[string]int{} // of jobs, and of arrays by their first row
	for i := range rows {
		at[rows[i].job.Ref] = i
		array, _, element := strings.Cut(rows[i].job.Ref, "_")
		if _, known := at[array]; element && !known {
			at[array] = i
		}
	}
	children := make([][]int, len(rows))
	var roots []int
	for i := range rows {
		if above, ok := parentOf(rows[i].job, at, i); ok {
			children[above] = append(children[above], i)
		} else {
			roots = append(roots, i)
		}
	}
	out := make([]row, 0, len(rows))
	var add func(i, level int, own, below string)
	add = func(i, level int, own, below string) {
		rows[i].branch = own
		out = append(out, rows[i])
		for n, child := range children[i] {
			last, bar := "├─", "│ "
			if n == len(children[i])-1 {
				last, bar = "└─", "  "
			}
			if level >= maxIndent {
				bar = ""
			}
			add(child, level+1, below+last, below+bar)
		}
	}
	for _, i := range roots {
		add(i, 0, "", "")
	}
	return out
}

// parentOf returns the row of the first listed job on which a job depends.
func parentOf(j *greylagv1.Job, at map[string]int, own int) (int, bool) {
	for _, d := range j.Depends {
		if i, listed := at[d.Job]; listed && i != own {
			return i, true
		}
	}
	return 0, false
}
