package server

import (
	"maps"
	"slices"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// licencesOf returns those of the licences that a job requests.
func licencesOf(v *state.View, job *cluster.Job) []*greylagv1.LicenceInfo {
	if len(job.Spec.Request.Licences) == 0 {
		return nil
	}
	return slices.DeleteFunc(licences(v), func(l *greylagv1.LicenceInfo) bool {
		return !slices.ContainsFunc(job.Spec.Request.Licences, func(x cluster.Licence) bool { return x.Name == l.Name })
	})
}

// licences returns, by name, the total of each licence that the policy or a job names, and how many
// jobs hold and request. O(active jobs).
func licences(v *state.View) (list []*greylagv1.LicenceInfo) {
	named := map[string]*greylagv1.LicenceInfo{}
	of := func(name string) *greylagv1.LicenceInfo {
		if named[name] == nil {
			named[name] = &greylagv1.LicenceInfo{Name: name}
		}
		return named[name]
	}
	for _, l := range v.Policy().Scheduling.Licences {
		of(l.Name).Total = int64(l.Count)
	}
	for j := range v.Jobs(0) {
		for _, l := range j.Spec.Request.Licences {
			if j.State.HasAllocation() {
				of(l.Name).Used += int64(l.Count)
			} else {
				of(l.Name).Wanted += int64(l.Count)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		list = append(list, named[name])
	}
	return list
}
