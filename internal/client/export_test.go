package client

// Patient is patient for tests.
var Patient = patient
