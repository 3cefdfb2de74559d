"""Real coding agents against a fake model of our own, without any network.

    ./x py -m tests.interop.agents --agents node_modules/.bin

`clients` says how each of the four is told of the model, `protocols` and `fake_model` are that
model, `scenes` runs a client in a fresh house, and `judging` says what the traces show; `work` and
`work_judging` do so for real work with a skill, `day` for a day under the developer policy.
"""
