package gqueue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// mostAwaited is the largest number of jobs in one line.
	mostAwaited = 3
	// mostAsked is how many jobs one call asks for, limited by the words of a filter.
	mostAsked = 5000
)

// dependencies are the active jobs on which others depend, by their names in dependencies: elements
// for an array.
type dependencies map[string][]*greylagv1.Job

// dependencies fetches the jobs on which the listed ones depend, if the listing shows them. It
// needs few calls: there may be as many as jobs.
func (l *listing) dependencies(ctx context.Context, c ui.Cluster, jobs []*greylagv1.Job) (dependencies, error) {
	known := make(dependencies)
	if !l.why || l.json {
		return known, nil
	}
	for _, j := range jobs {
		if wire.Word(j.Reason) != cluster.ReasonDependency.String() {
			continue
		}
		for _, d := range j.Depends {
			if d.Job != "" { // singleton has none
				known[d.Job] = nil
			}
		}
	}
	for words := range slices.Chunk(slices.Sorted(maps.Keys(known)), mostAsked) {
		found, _, err := listing{filter: &greylagv1.Filter{Jobs: words}, stale: l.stale}.fetch(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("fetch the jobs of dependencies: %w", err)
		}
		for _, j := range found {
			words := []string{j.Ref}
			if array, _, element := strings.Cut(j.Ref, "_"); element {
				words = append(words, array)
			}
			for _, word := range words {
				if _, wanted := known[word]; wanted {
					known[word] = append(known[word], j)
				}
			}
		}
	}
	return known, nil
}

// text returns the jobs on which one waits by its dependencies; "" when none of them is known.
func (a dependencies) text(j *greylagv1.Job) string {
	var parts []string
	more := 0
	words := ui.DependencyWords(j.Depends)
	for i, d := range j.Depends {
		for _, other := range a[d.Job] {
			begun := wire.Word(other.State) != cluster.Pending.String()
			switch {
			case wire.Word(d.Kind) == cluster.After.String() && begun: // at most its minutes are left
			case wire.Word(d.Kind) == cluster.AfterCorr.String() && d.Job != other.Ref && j.ArrayId != 0 && j.ArrayIndex != other.ArrayIndex:
			case len(parts) == mostAwaited:
				more++
			default:
				parts = append(parts, ui.UnmetText(&greylagv1.Unmet{Job: other.Ref, User: other.User, State: other.State, Dependency: words[i]}))
			}
		}
	}
	if more > 0 {
		parts = append(parts, ui.Count(int64(more), "more job"))
	}
	if len(parts) == 0 {
		return ""
	}
	if len(j.Depends) > 1 && j.Depends[0].Any {
		return "waits for one of: " + strings.Join(parts, "; ")
	}
	return "waits for " + strings.Join(parts, "; ")
}

// why is the line under a pending job.
func (a dependencies) why(j *greylagv1.Job, v view) string {
	if wire.Word(j.Reason) != cluster.ReasonDependency.String() {
		return ui.WaitText(j, v.when)
	}
	text := a.text(j)
	if text == "" && j.Detail == "" && len(j.Depends) > 0 {
		return "dependency " + ui.DependencyText(j.Depends) + " is not satisfied yet"
	}
	return cmp.Or(text, j.Detail)
}
