package e2e

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestModel checks that the model accepts what a correct cluster may answer and refuses each kind
// of wrong answer: it cannot find what it does not refuse.
func TestModel(t *testing.T) {
	const never = 1000
	op := func(kind opKind, call, back int64, got answer) porcupine.Operation {
		return porcupine.Operation{Input: operation{key: "k", kind: kind, text: got.comment}, Output: got, Call: call, Return: back}
	}
	lost := answer{unknown: true}
	submitted := op(opSubmit, 0, 1, answer{id: 7})
	pending, cancelled := answer{id: 7, state: "PENDING"}, answer{id: 7, state: "CANCELLED"}
	wrote := answer{id: 7, state: "PENDING", comment: "x"}
	for name, test := range map[string]struct {
		history []porcupine.Operation
		fine    bool
	}{
		"one after the other":        {[]porcupine.Operation{submitted, op(opGet, 2, 3, pending), op(opCancel, 4, 5, answer{}), op(opGet, 6, 7, cancelled)}, true},
		"submitted again":            {[]porcupine.Operation{submitted, op(opSubmit, 2, 3, answer{id: 7})}, true},
		"stored twice":               {[]porcupine.Operation{submitted, op(opSubmit, 2, 3, answer{id: 8})}, false},
		"lost after acknowledgement": {[]porcupine.Operation{submitted, op(opGet, 2, 3, answer{missing: true})}, false},
		"stale read":                 {[]porcupine.Operation{submitted, op(opCancel, 2, 3, answer{}), op(opGet, 4, 5, pending)}, false},
		"cancelled twice":            {[]porcupine.Operation{submitted, op(opCancel, 2, 3, answer{}), op(opCancel, 4, 5, answer{})}, false},
		"lost write":                 {[]porcupine.Operation{submitted, op(opSet, 2, 3, wrote), op(opGet, 4, 5, pending)}, false},
		"read of a write under way":  {[]porcupine.Operation{submitted, op(opSet, 2, 9, wrote), op(opGet, 3, 4, pending), op(opGet, 5, 6, wrote)}, true},
		"back and forth":             {[]porcupine.Operation{submitted, op(opSet, 2, 9, wrote), op(opGet, 3, 4, wrote), op(opGet, 5, 6, pending)}, false},
		"unknown that happened":      {[]porcupine.Operation{submitted, op(opCancel, 2, never, lost), op(opGet, 4, 5, cancelled)}, true},
		"unknown that did not":       {[]porcupine.Operation{submitted, op(opCancel, 2, never, lost), op(opGet, 4, 5, pending)}, true},
		"unknown submission":         {[]porcupine.Operation{op(opSubmit, 0, never, lost), op(opSubmit, 2, 3, answer{id: 7}), op(opGet, 4, 5, pending)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := porcupine.CheckOperations(model(), test.history); got != test.fine {
				t.Errorf("the model says %t", got)
			}
		})
	}
}
