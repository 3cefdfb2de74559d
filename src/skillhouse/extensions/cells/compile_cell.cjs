// The skill that makes the code cache of installed packages, in a cell; see code_cache.py.
'use strict';

const path = require('path');

const { make } = require(path.join(path.dirname(process.argv[1]), 'cell_code_cache.cjs'));

exports.tools = {
  compile: async ({ names }) => {
    const root = require.resolve.paths('x').find((place) => !place.startsWith(__dirname));
    return make(root, names);
  },
};
