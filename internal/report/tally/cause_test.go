package tally

import "testing"

func TestClassOf(t *testing.T) {
	for why, want := range map[string]CauseClass{
		"node n1 is lost":                                             CauseNode,
		"node n1 was drained":                                         CauseNode,
		"node n1 is still cleaning up after job 7":                    CauseNode,
		"job 7 has not left its nodes in time":                        CauseOverrun,
		"no controller was running to start jobs in time":             CauseController,
		"the request was changed and does not fit the promised start": CauseRequest,
		"the job was moved to a lower tier, or to a partition of lower priority, than its start was promised for": CauseRequest,
		"it started 5:00 late": CauseLate,
		"an administrator changed the nodes, a reservation or the policy": CauseOther,
		"the time limit of job 7 was raised while it runs":                CauseOther,
		"partition main is down":                                          CauseOther,
	} {
		if got := ClassOf(why); got != want {
			t.Errorf("%q is %s, want %s", why, got, want)
		}
	}
}
